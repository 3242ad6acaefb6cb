"""From a group to machine code: space → sites → loops → tile program → LLVM IR → object code."""
