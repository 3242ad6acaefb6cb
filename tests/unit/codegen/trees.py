"""Recovers the tree of additions of a built kernel from outside, by which sums of extreme values come out.

The idea is that of "FPRev: Revealing the Accumulation Order of Floating-Point Summation": a large value swallows what
is added to it. Everything is told by one question on three places of a row: are i and j added up before k joins?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fusebound.codegen.order import Tree

Triple = tuple[int, int, int]
Probe = Callable[[Sequence[Triple]], list[bool]]
"""For each (i, j, k): whether i and j are added up before k joins them."""


def recover(places: Sequence[int], probe: Probe) -> Tree:
    """The binary tree over some places of a row that answers the probe's questions, brought into order."""
    if len(places) <= 2:
        return canonical(places[0] if len(places) == 1 else (places[0], places[1]))
    first, *rest = places
    # Subtrees that join the path of `first` to the root one after another: from farthest to nearest.
    classes: list[list[int]] = []
    while rest:
        head, *others = rest
        alike = probe([(head, o, first) for o in others])
        classes.append([head, *(o for o, same in zip(others, alike, strict=True) if same)])
        rest = [o for o, same in zip(others, alike, strict=True) if not same]
    heads = [c[0] for c in classes]
    before = probe([(first, a, b) for a in heads for b in heads if a != b])
    earlier = iter(before)
    rank = {a: -sum(next(earlier) for b in heads if a != b) for a in heads}
    tree: Tree = first
    for c in sorted(classes, key=lambda c: rank[c[0]]):
        tree = (tree, recover(c, probe))
    return canonical(tree)


def canonical(tree: Tree | None) -> Tree:
    """Addition commutes: the smaller place comes first."""
    assert tree is not None
    if isinstance(tree, int):
        return tree
    a, b = canonical(tree[0]), canonical(tree[1])
    return (a, b) if lowest(a) < lowest(b) else (b, a)


def lowest(tree: Tree) -> int:
    while not isinstance(tree, int):
        tree = tree[0]
    return tree


def batched(rows: int, ask: Callable[[torch.Tensor, Sequence[Triple]], torch.Tensor], n: int) -> Probe:
    """A probe that asks `rows` questions with one call: a row of zeros of length n each, to be filled."""

    def probe(questions: Sequence[Triple]) -> list[bool]:
        answers: list[bool] = []
        for start in range(0, len(questions), rows):
            some = questions[start : start + rows]
            padded = [*some, *[some[0]] * (rows - len(some))]
            x = torch.zeros(rows, n, dtype=torch.float64)
            answers += ask(x, padded).tolist()[: len(some)]
        return answers

    return probe
