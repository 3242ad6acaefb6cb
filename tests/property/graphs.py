"""Random graphs of primitives, and inputs for them, drawn from one source of randomness.

Values are small integers (in any type), so that sums, products and differences are exact in whatever order they are
computed: a kernel has to give the very bits of the framework's operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from random import Random

import torch

from fusebound.ir.builder import Builder
from fusebound.ir.graph import Graph

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127)
"""Ones, primes, the vectors' widths and their neighbours. No 0: every value here is meant for a kernel, and a kernel
takes no empty tensor (F507). Programs (`draft.SIZES`) have empty ones, beside kernels of others."""
FLOATS = ("float32", "float64", "bfloat16", "float16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
MOST = 6000
"""Elements of an input at most; steps that would leave more than three times as many are not taken."""
SPECIAL = (float("nan"), float("inf"), -float("inf"), -0.0)


class Unfit(Exception):
    """The step does not apply to the value that was drawn."""


@dataclass
class Drawn:
    """A graph and a tensor for each of its inputs."""

    graph: Graph
    inputs: dict[str, torch.Tensor]


@dataclass
class _Draft:
    """A graph in the making."""

    random: Random
    special: bool
    builder: Builder = field(default_factory=lambda: Builder("random"))
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    values: list[str] = field(default_factory=list)

    def shape(self, v: str) -> tuple[int, ...]:
        return tuple(int(d) for d in self.builder.values[v].shape)  # type: ignore[arg-type]

    def dtype(self, v: str) -> str:
        return self.builder.values[v].dtype

    def alike(self, v: str, *, shape: bool = False) -> list[str]:
        return [
            w for w in self.values
            if self.dtype(w) == self.dtype(v) and (not shape or self.shape(w) == self.shape(v))
        ]  # fmt: skip

    def input(self, shape: tuple[int, ...], dtype: str, below: int = 0) -> str:
        """A new input: small integers, or indices `below` a limit, under random strides."""
        seed = self.random.randrange(1 << 30)
        t = contents(shape, dtype, seed, below, self.special)
        t = strided(self.random, t)
        name = f"x{len(self.inputs)}"
        self.builder.input(name, shape, dtype, t.stride())
        self.inputs[name] = t
        return name

    def step(self) -> None:
        """One user operator on one of the values so far, most likely a recent one."""
        r = self.random
        v = r.choice(self.values[-4:]) if r.random() < 0.7 else r.choice(self.values)
        make = r.choices([s for s, _ in STEPS], [w for _, w in STEPS])[0]
        operands = OPERANDS.get(make, lambda d, v: ())(self, v)
        self.builder.begin("op")
        out = make(self, v, *operands)
        self.builder.end("test", (), (), (out,), "pointwise")
        self.values.append(out)


def draw(random: Random) -> Drawn | None:
    """A graph of two to eight operators; None where nothing could be made of the input that was drawn."""
    d = _Draft(random, random.random() < 0.3)
    shape = [random.choice(SIZES) for _ in range(random.choice((0, 1, 2, 2, 2, 3, 3, 4)))]
    while prod(shape) > MOST:
        shape[shape.index(max(shape))] = random.choice((1, 2, 3, 5))
    d.values.append(d.input(tuple(shape), random.choice((*FLOATS, "float32", "float32", *INTEGERS, "bool"))))
    for _ in range(random.randrange(2, 9)):
        _try_step(d)
    made = [v for v in d.values if v not in d.inputs]
    if not made:
        return None
    others = random.sample(made, random.randrange(min(len(made), 3))) if random.random() < 0.4 else []
    outputs = list(dict.fromkeys((made[-1], *others)))
    for v in outputs:
        if random.random() < 0.3:
            d.builder.restride(v, _permuted_strides(random, d.shape(v)))
    return Drawn(_without_dead(d.builder.finish(outputs)), d.inputs)


def _try_step(d: _Draft) -> None:
    """Draw steps until one applies."""
    for _ in range(10):
        before = len(d.builder.nodes), set(d.builder.values), set(d.builder._names)
        try:
            d.step()
            return
        except (Unfit, ValueError, IndexError, KeyError):
            b = d.builder
            del b.nodes[before[0] :]
            for v in [v for v in b.values if v not in before[1] and v not in d.inputs]:
                del b.values[v]
            b._names, b._user = before[2], ""


def _without_dead(g: Graph) -> Graph:
    """The graph without operators that no output needs."""
    needed = set(g.outputs)
    for n in reversed(g.nodes):
        if n.out in needed:
            needed.update(n.inputs)
    nodes = tuple(n for n in g.nodes if n.out in needed)
    users = {n.user for n in nodes}
    values = {v: x for v, x in g.values.items() if v in needed or v in g.input_ids}
    return replace(g, nodes=nodes, values=values, user_ops=tuple(u for u in g.user_ops if u.name in users))


# steps


def _unary(d: _Draft, v: str) -> str:
    kind = d.dtype(v)
    op = "not" if kind in ("bool", "uint8") else d.random.choice(("neg", "abs"))
    return d.builder.emit(op, v)


def _second(d: _Draft, v: str) -> tuple[str, ...]:
    """Another operand: a value of the type, or a new input that broadcasts."""
    shape = d.shape(v)
    if d.random.random() < 0.3 and shape:
        smaller = tuple(n if d.random.random() < 0.5 else 1 for n in shape)
        return (d.input(smaller[d.random.randrange(len(shape) + 1) :], d.dtype(v)),)
    return (d.random.choice(d.alike(v)),)


def _binary(d: _Draft, v: str, w: str) -> str:
    ops = ("and", "or", "xor") if d.dtype(v) == "bool" else ("add", "sub", "mul", "maximum", "minimum")
    return d.builder.emit(d.random.choice(ops), v, w)


def _compare(d: _Draft, v: str, w: str) -> str:
    return d.builder.emit(d.random.choice(("eq", "ne", "lt", "ge")), v, w)


def _where(d: _Draft, v: str) -> str:
    masks = [w for w in d.values if d.dtype(w) == "bool"]
    if not masks:
        raise Unfit
    return d.builder.emit("where", d.random.choice(masks), v, d.random.choice(d.alike(v)))


def _cast(d: _Draft, v: str) -> str:
    to = d.random.choice((*FLOATS, *(() if d.special else (*INTEGERS, "bool"))))
    return d.builder.emit("cast", v, dtype=to, user=d.random.random() < 0.5)


def _reduce(d: _Draft, v: str) -> str:
    shape, kind = d.shape(v), d.dtype(v)
    if not shape:
        raise Unfit
    exact = kind not in FLOATS
    op = d.random.choice(("sum", "sum", "amax", "amin", "argmax", "argmin", "any", "all"))
    if kind == "bool" or (kind == "uint8" and op in ("any", "all")):
        op = "any" if kind == "bool" else "sum"
    count = 1 if op.startswith("arg") else d.random.choice((1, 1, 1, min(2, len(shape))))
    axes = tuple(sorted(d.random.sample(range(len(shape)), count)))
    wide = {"dtype": "int64"} if op == "sum" and exact else {}
    out = d.builder.emit(op, v, axes=axes, **wide)
    if d.random.random() < 0.6:
        out = d.builder.emit("reshape", out, shape=tuple(1 if i in axes else n for i, n in enumerate(shape)))
    return out


def _permute(d: _Draft, v: str) -> str:
    perm = list(range(len(d.shape(v))))
    d.random.shuffle(perm)
    return d.builder.emit("permute", v, perm=tuple(perm))


def _reshape(d: _Draft, v: str) -> str:
    shape, r = list(d.shape(v)), d.random
    if not shape or (r.random() < 0.2 and len(shape) < 4):
        shape.insert(r.randrange(len(shape) + 1), 1)
    elif r.random() < 0.5 and len(shape) > 1:
        i = r.randrange(len(shape) - 1)
        shape[i : i + 2] = [shape[i] * shape[i + 1]]
    else:
        i = r.randrange(len(shape))
        parts = [n for n in range(2, shape[i]) if shape[i] % n == 0]
        if not parts or len(shape) > 3:
            raise Unfit
        n = r.choice(parts)
        shape[i : i + 1] = [n, shape[i] // n]
    return d.builder.emit("reshape", v, shape=tuple(shape))


def _expand(d: _Draft, v: str) -> str:
    shape = d.shape(v)
    if 1 in shape:
        to = tuple(d.random.choice((2, 3, 17)) if n == 1 else n for n in shape)
    else:
        to = (d.random.choice((2, 3)), *shape)
    if prod(to) > 3 * MOST or len(to) > 4:
        raise Unfit
    return d.builder.emit("expand", v, shape=to)


def _window(d: _Draft, v: str, steps: tuple[int, ...] = (1, 1, 1, 2, 3)) -> tuple[int, int, int, int]:
    """An axis and the elements start, start + step, … of it."""
    shape = d.shape(v)
    dim = d.random.randrange(len(shape))
    start = d.random.randrange(shape[dim])
    step = d.random.choice(steps)
    most = (shape[dim] - start + step - 1) // step
    return dim, start, step, d.random.randrange(1, most + 1)


def _slice(d: _Draft, v: str) -> str:
    dim, start, step, n = _window(d, v)
    shape = d.shape(v)
    return d.builder.emit(
        "slice", v, shape=(*shape[:dim], n, *shape[dim + 1 :]), dim=dim, start=start, step=step
    )


def _slice_scatter(d: _Draft, v: str) -> str:
    dim, start, step, n = _window(d, v, (1, 1, 1, 2))
    shape = d.shape(v)
    part = (*shape[:dim], n, *shape[dim + 1 :])
    source = d.random.choice(d.alike(v, shape=True))
    piece = d.builder.emit("slice", source, shape=part, dim=dim, start=shape[dim] - n, step=1)
    return d.builder.emit("slice_scatter", v, piece, dim=dim, start=start, step=step)


def _flip(d: _Draft, v: str) -> str:
    rank = len(d.shape(v))
    return d.builder.emit(
        "flip", v, dims=tuple(sorted(d.random.sample(range(rank), d.random.randrange(1, rank + 1))))
    )


def _pad(d: _Draft, v: str) -> str:
    shape = d.shape(v)
    low = tuple(d.random.choice((0, 0, 1, 2, 5)) for _ in shape)
    high = [d.random.choice((0, 0, 1, 3)) for _ in shape]
    to = tuple(a + n + b for a, n, b in zip(low, shape, high, strict=True))
    if prod(to) > 3 * MOST:
        raise Unfit
    return d.builder.emit("pad", v, shape=to, lo=low, value=d.random.choice((0, 1)))


def _cat(d: _Draft, v: str) -> str:
    shape = d.shape(v)
    dim = d.random.randrange(len(shape))
    fits = [
        w for w in d.alike(v) if len(d.shape(w)) == len(shape) and _rest(d.shape(w), dim) == _rest(shape, dim)
    ]
    parts = [v, *(d.random.choice(fits) for _ in range(d.random.choice((1, 1, 2))))]
    d.random.shuffle(parts)
    return d.builder.emit("cat", *parts, dim=dim)


def _rest(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return shape[:dim] + shape[dim + 1 :]


def _table(d: _Draft, v: str) -> tuple[str | int, ...]:
    """Axis, source and index of a gather: mostly a new input as the source, as kernels want it."""
    shape = d.shape(v)
    dim = d.random.randrange(len(shape))
    source = d.input(shape, d.dtype(v)) if d.random.random() < 0.7 else v
    index = tuple(d.random.choice((1, 3, 17)) for _ in range(d.random.choice((0, 1, 1))))
    return dim, source, d.input(index, d.random.choice(("int64", "int32")), below=shape[dim])


def _index_select(d: _Draft, v: str, dim: int, source: str, index: str) -> str:
    return d.builder.emit("index_select", source, index, dim=dim)


def _points(d: _Draft, v: str) -> tuple[str | int, ...]:
    shape = list(d.shape(v))
    dim = d.random.randrange(len(shape))
    shape[dim] = d.random.choice((1, 3, 17))
    return dim, d.input(tuple(shape), "int64", below=d.shape(v)[dim])


def _gather(d: _Draft, v: str, dim: int, index: str) -> str:
    return d.builder.emit("gather", v, index, dim=dim)


def _constant(d: _Draft, v: str) -> str:
    return d.builder.emit("xor" if d.dtype(v) == "bool" else "add", v, d.builder.const(1, d.dtype(v)))


STEPS: list[tuple[Callable[..., str], int]] = [
    (_unary, 12), (_binary, 22), (_compare, 5), (_where, 4), (_cast, 5), (_reduce, 16), (_permute, 6),
    (_reshape, 7), (_expand, 4), (_slice, 4), (_slice_scatter, 2), (_flip, 2), (_pad, 4), (_cat, 4),
    (_index_select, 2), (_gather, 1), (_constant, 3),
]  # fmt: skip
"""Every step and how often it is drawn."""
OPERANDS: dict[Callable[..., str], Callable[[_Draft, str], tuple[str | int, ...]]] = {
    _binary: _second, _compare: lambda d, v: (d.random.choice(d.alike(v)),), _index_select: _table, _gather: _points,
}  # fmt: skip
"""What has to be drawn before the operator is opened, because it adds inputs."""


# tensors


def contents(shape: tuple[int, ...], dtype: str, seed: int, below: int, special: bool) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    kind = getattr(torch, dtype)
    if below:
        return torch.randint(0, below, shape, generator=g).to(kind)
    if dtype in ("bool", "uint8"):
        return torch.randint(0, 2 if dtype == "bool" else 4, shape, generator=g).to(kind)
    t = torch.randint(-3, 4, shape, generator=g).to(kind)
    if special and kind.is_floating_point:
        value = torch.tensor(SPECIAL[seed % len(SPECIAL)], dtype=kind)
        t = torch.where(torch.rand(shape, generator=g) < 0.03, value, t)
    return t


def strided(r: Random, t: torch.Tensor) -> torch.Tensor:
    """The same values: in order, transposed, every other element, a window; or a row expanded, windows that meet."""
    how = r.random()
    if how < 0.45 or t.dim() == 0:
        return t
    if how < 0.65:
        return torch.empty_strided(t.shape, _permuted_strides(r, tuple(t.shape)), dtype=t.dtype).copy_(t)
    if how < 0.8:
        room = torch.zeros([2 * n + 1 for n in t.shape], dtype=t.dtype)
        return room[tuple(slice(1, 1 + 2 * n, 2) for n in t.shape)].copy_(t)
    if how < 0.88:
        room = torch.zeros([n + 3 for n in t.shape], dtype=t.dtype)
        return room[tuple(slice(2, 2 + n) for n in t.shape)].copy_(t)
    dim = r.randrange(t.dim())
    if how < 0.94 or not t.numel():
        return t[(slice(None),) * dim + (slice(1),)].clone().expand(t.shape)
    strides = [r.choice((0, 1, 1, 2)) for _ in t.shape]
    return t.reshape(-1).repeat(2 * t.dim()).as_strided(t.shape, strides)


def _permuted_strides(r: Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    order = list(range(len(shape)))
    r.shuffle(order)
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)
