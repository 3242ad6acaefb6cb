"""The verifier, measured: faults put into built programs, and correct variants that look suspicious.

    from tests.mutation.harness import Mutation, check_mutant
    from tests.mutation.programs import programs

    program = programs()["softmax"]                  # captured, planned and built on demand; see harness.Subject
    print(program.source)                            # its tile programs, by group id
    def no_maximum(kernel: tile.Kernel) -> tile.Kernel: ...
    verdict = check_mutant(program, Mutation("missing max-subtract", "g0", tile=no_maximum))
    assert verdict.caught, verdict

A `Mutation` changes one stage of what a program is built through: `tile` the tile program of a group, `text` its LLVM
assembly, `wrap` the executable (group order, outputs, memory). All are pure functions of the original. `check_mutant`
builds the changed program, runs `fusebound.verify` on it as on any other and returns a `Verdict`: "caught" with what
was said, "refused" where the tile program's own spec already forbids it (no access leaves its memory), or "survived".
A correct variant is checked in the same way and has to survive. A program of your own is
`Subject(name, fn, args)`.
"""
