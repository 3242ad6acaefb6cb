"""Every fault at every site of every program, every variant, and what the verifier says.

`make mutation` prints the table; `python -m tests.mutation.suite NAME…` runs some programs only. Excuses of faults in
instructions name them as AVX-512 has them: on other machines some mutants count as survivors.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from tests.mutation import assembly, loops, reductions, running, values
from tests.mutation.harness import Mutation, Subject, Verdict, check_mutant
from tests.mutation.programs import programs
from tests.mutation.survivors import excuse, unused
from tests.mutation.variants import variants

from fusebound.errors import BuildError

STATES = ("caught", "refused", "equivalent", "conforming", "borderline", "survived")


def mutations(subject: Subject) -> Iterator[Mutation]:
    """All faults of all operators at all sites of a program; of its call alone, where it runs eagerly as given."""
    if subject.given is not subject.args:
        yield Mutation("precondition dropped", "all", wrap=running.unguarded)
        return
    for group, kernel in subject.kernels.items():
        for module in (loops, values, reductions):
            for what, where, edit in module.faults(kernel.program):
                yield Mutation(what, f"{group} {where}", tile=edit, group=group)
        for what, where, change in assembly.faults(kernel.llvm):
            yield Mutation(what, f"{group} {where}", text=change, group=group)
    for what, where, wrap in running.faults(subject):
        yield Mutation(what, where, wrap=wrap)


def state(subject: Subject, mutation: Mutation) -> str:
    """What became of a mutant: one of `STATES`, or "same" for a change that leaves the code as it was."""
    try:
        found = check_mutant(subject, mutation)
    except ValueError:
        return "same"
    except BuildError:
        return "refused"
    if found.caught:
        return found.state
    rule = excuse(subject, mutation)
    return rule.kind if rule is not None and rule.holds(subject, mutation) else "survived"


def alarm(subject: Subject, variant: Mutation) -> Verdict | None:
    """What the verifier says of a correct variant; None for a change that leaves the code as it was."""
    try:
        return check_mutant(subject, variant)
    except ValueError:
        return None


def main(names: Sequence[str]) -> int:
    """Run all, print the table; 1 for a fault that survives without a reason, a reason without a
    fault, or a false alarm."""
    torch.set_num_threads(1)
    table: dict[str, Counter[str]] = {}
    alarms, correct = 0, 0
    for name, subject in programs().items():
        if names and name not in names:
            continue
        begun, before = time.perf_counter(), sum(c.total() for c in table.values())
        for m in mutations(subject):
            found = state(subject, m)
            table.setdefault(m.operator, Counter())[found] += 1
            if found == "survived":
                print(f"survived: {name}: {m.operator} at {m.site}", flush=True)
        count = 0
        for m in variants(subject):
            verdict = alarm(subject, m)
            if verdict is not None:
                count += 1
                if verdict.caught:
                    alarms += 1
                    print(f"false alarm: {name}: {m.operator} at {m.site}: {verdict.reason}", flush=True)
        correct += count
        made = sum(c.total() for c in table.values()) - before
        print(f"{name}: {made} mutants, {count} variants, {time.perf_counter() - begun:.0f} s", flush=True)
    _show(table)
    print(f"{correct} correct variants, {alarms} false alarms")
    idle = [] if names else unused((s, m) for s in programs().values() for m in mutations(s))
    for program, operator, statement in idle:
        print(f"an excuse without a mutant: {program}: {operator} at {statement}")
    return int(alarms > 0 or bool(idle) or any(c["survived"] for c in table.values()))


def _show(table: dict[str, Counter[str]]) -> None:
    width = max(map(len, table), default=0)
    print(f"{'operator':{width}} {' '.join(f'{s:>11}' for s in STATES)}")
    for operator, counts in sorted(table.items()):
        print(f"{operator:{width}} {' '.join(f'{counts[s]:>11}' for s in STATES)}")
    total = sum(table.values(), Counter[str]())
    print(f"{'all':{width}} {' '.join(f'{total[s]:>11}' for s in STATES)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
