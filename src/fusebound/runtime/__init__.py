"""Running a plan: steps, calls into machine code, the pool of outputs."""
