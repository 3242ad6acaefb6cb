"""Every core operator of the framework has a class, and lowerings agree with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.unit.capture import samples

from fusebound.capture.classes import classify
from fusebound.capture.lower import LOWERINGS, Ctx, T
from fusebound.capture.registry import CUSTOM, register_op
from fusebound.capture.replay import split_target
from fusebound.capture.torch import capture
from fusebound.errors import UsageError
from fusebound.ir.maps import identity
from fusebound.ir.ops import CLASSES

# Reductions that may be off, an ignored label, a move that is a copy: the weaker class is right too.
WEAKER = {
    "reduce": {"pointwise"},
    "gather": {"reduce", "pointwise"},
    "scatter": {"pointwise"},
    "move": {"pointwise"},
    "pointwise": set[str](),
}


def core() -> Iterator[str]:
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            for overload in packet.overloads():
                if torch.Tag.core in getattr(packet, overload).tags:
                    yield f"aten.{name}.{overload}"


def test_every_core_operator_is_classified() -> None:
    found = list(core())
    assert len(found) > 150
    assert {t: classify(t) for t in found if classify(t) not in CLASSES} == {}


def test_every_lowering_is_classified() -> None:
    assert [t for t in LOWERINGS if t not in CUSTOM and classify(t) is None] == []


def test_no_operator_has_two_classes() -> None:
    from fusebound.capture.classes import _TABLES

    names = [n for table, _ in _TABLES for n in table]
    assert sorted(set(names)) == sorted(names)


def test_primitives_agree_with_the_class() -> None:
    a, b = samples.operands(torch.float32)
    index = torch.tensor([[0, 3], [1, 1], [3, 2], [2, 0]])
    families = (
        (samples.UNARY, (a,)),
        (samples.BINARY, (a, b)),
        (samples.MOVES, (a,)),
        (samples.GATHER, (a, index)),
    )
    for fns, args in families:
        graph = capture(lambda *xs, fns=fns: [f(*xs) for f in fns.values()], args).graph
        for u in graph.user_ops:
            cls = classify(split_target(u.target)[0])
            assert cls is not None
            assert u.kind == cls or u.kind in WEAKER[cls], (u.label, u.kind, cls)


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    lib = torch.library.Library("fbclasses", "DEF")
    lib.define("swish(Tensor x) -> Tensor")
    lib.impl("swish", lambda x: x * torch.sigmoid(x), "CompositeExplicitAutograd")
    lib.impl("swish", lambda x: torch.empty_like(x), "Meta")
    yield lib
    LOWERINGS.pop("fbclasses.swish.default", None)
    CUSTOM.pop("fbclasses.swish.default", None)
    lib._destroy()


def test_custom_operator(library: torch.library.Library) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.fbclasses.swish(x) + 1

    x = torch.randn(4, 5)
    unknown = capture(fn, (x,)).graph.user["swish"]
    assert (unknown.kind, unknown.why) == ("opaque", "F601")

    register_op("fbclasses::swish", "pointwise", maps=[identity(2)])
    graph = capture(fn, (x,)).graph
    assert (graph.user["swish"].kind, graph.user["swish"].why) == ("pointwise", "F601")
    assert graph.node["swish"].attr("maps") == ("[i0, i1]",)

    def lower(c: Ctx, x: T) -> T:
        return x / (c("exp", -x) + 1.0)

    register_op("fbclasses.swish", "pointwise", lower)
    graph = capture(fn, (x,)).graph
    assert graph.user["swish"].why == ""
    assert [n.op for n in graph.members["swish"]] == ["neg", "exp", "const", "add", "div"]


@pytest.mark.parametrize(
    ("name", "cls"), [("fbclasses::none", "pointwise"), ("aten::add.Tensor", "sideways")]
)
def test_bad_registration(name: str, cls: str) -> None:
    with pytest.raises(UsageError) as caught:
        register_op(name, cls)
    assert caught.value.code == "E122"


def test_maps_must_fit_the_operands(library: torch.library.Library) -> None:
    with pytest.raises(UsageError):
        register_op("fbclasses::swish", "pointwise", maps=[identity(2), identity(2)])
