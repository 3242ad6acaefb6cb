"""A sample of the mutants and of the correct variants; `make mutation` runs all."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from tests.mutation.harness import Mutation, Subject, check_mutant, poisoned
from tests.mutation.programs import programs
from tests.mutation.suite import alarm, mutations, state
from tests.mutation.survivors import unused
from tests.mutation.variants import variants, why

from fusebound.codegen.jit import vector_bits

SUBJECTS = programs()
QUICK = (
    "gate",
    "broadcast",
    "softmax",
    "rms norm",
    "column sums",
    "masked mean",
    "quantize",
    "pieces",
    "overlapping",
)
"""Programs that are verified in some ten milliseconds."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def drawn(name: str, kind: str, count: int) -> list[Mutation]:
    """Some mutants or variants of a program, the same in every run."""
    made = list((mutations if kind == "mutants" else variants)(SUBJECTS[name]))
    return random.Random(name).sample(made, min(count, len(made)))


@pytest.mark.parametrize("name", QUICK)
def test_faults_are_caught_and_variants_pass(name: str) -> None:
    subject: Subject = SUBJECTS[name]
    survived = [m for m in drawn(name, "mutants", 5) if state(subject, m) == "survived"]
    alarms = [(m, v) for m in drawn(name, "variants", 2) if (v := alarm(subject, m)) and v.caught]
    assert not survived and not alarms


def test_every_variant_says_why_it_conforms() -> None:
    assert all(why(m) for name in QUICK for m in variants(SUBJECTS[name]))


def test_scratch_that_is_read_unwritten_shows() -> None:
    kernel = SUBJECTS["softmax"].kernels["g0"]
    assert poisoned(kernel.llvm).count("call void @llvm.memset") == len(kernel.program.scratch) == 1


def test_a_mutation_that_changes_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="changes nothing"):
        check_mutant(SUBJECTS["gate"], Mutation("nothing", "nowhere", tile=lambda k: k))


@pytest.mark.skipif(vector_bits() != 512, reason="excuses of instructions name them as AVX-512 has them")
def test_every_excuse_is_of_a_mutant() -> None:
    """Nothing is run: the mutants are named by the kernels' statements."""
    made = [(s, m) for s in SUBJECTS.values() for m in mutations(s)]
    assert not unused(made)
    without_gate = [(s, m) for s, m in made if s.name != "gate"]
    assert {program for program, _, _ in unused(without_gate)} == {"gate"}
