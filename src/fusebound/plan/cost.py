"""Predicted times of operators, and a bound that no plan can beat under the same model."""

from __future__ import annotations

from fusebound.analysis.access import demand, elements
from fusebound.analysis.alias import is_view
from fusebound.analysis.group import in_order
from fusebound.analysis.roofline import bandwidth, eager_cost, instructions
from fusebound.analysis.traffic import gathered, level
from fusebound.gates.dependence import boundary_code
from fusebound.ir.control import control
from fusebound.ir.graph import Graph, UserOp
from fusebound.plan.candidates import origin, roles
from fusebound.target.target import Target


def user_op_us(g: Graph, user: UserOp, target: Target) -> float:
    """Predicted time of one user operator run by the framework, in µs; 0 for a view."""
    return eager_cost(g, user, target).total


def eager_us(g: Graph, target: Target) -> float:
    """Predicted time of the whole graph run by the framework, operator by operator."""
    return sum(user_op_us(g, u, target) for u in g.user_ops)


def lower_bound_us(g: Graph, target: Target) -> float:
    """A time that no plan of this graph beats under the model of `analysis.roofline`.

    Boundaries run through the framework in every plan. The other operators must at least be launched once for
    every time that they alternate with boundaries on a path, read what enters them from outside once and
    write what leaves them once, and compute every primitive once.
    """
    fixed = 0.0
    light: list[UserOp] = []
    for u in g.user_ops:
        if (c := control(g, u)) is not None:
            inside = [lower_bound_us(g.subgraphs[name], target) for name in c.subgraphs]
            fixed += target.framework_us + c.weigh(*inside)
        elif boundary_code(g, u):
            fixed += user_op_us(g, u, target)
        elif not is_view(g, u):
            light.append(u)
    nodes = frozenset(n.id for u in light for n in g.members[u.name])
    memory = sum(size / bandwidth(level(g, v, target), target) for v, size in _must_move(g, nodes))
    compute = instructions(g, nodes, target) / target.flops
    launch = min(target.launch_us, target.framework_us)
    return fixed + launch * _alternations(g, {u.name for u in light}) + max(memory, compute)


def _must_move(g: Graph, nodes: frozenset[str]) -> list[tuple[str, int]]:
    """The values that light operators read from or leave to the rest of the world, with the bytes of each."""
    kinds = roles(g)
    read: dict[str, int] = {}
    ordered = in_order(g, nodes)
    for user in dict.fromkeys(n.user for n in ordered):
        own = frozenset(n.id for n in g.members[user])
        for v, regions in demand(g, own).items():
            base, maker = origin(g, kinds, v)
            if maker is None or maker.name in kinds.boundaries:
                count = min(elements(g.values[v], regions), gathered(g, own, v))
                read[base] = max(read.get(base, 0), count * g.values[v].type.itemsize)
    written = ((v, g.values[v].nbytes) for n in ordered for v in n.outputs if _leaves(g, v, nodes))
    return [*read.items(), *written]


def _leaves(g: Graph, value: str, nodes: frozenset[str]) -> bool:
    """Whether a value must exist in memory: it escapes or a boundary reads it itself."""
    if value in g.escaping:
        return True
    return any(boundary_code(g, g.user[n.user]) for n in g.consumers[value] if n.id not in nodes)


def _alternations(g: Graph, light: set[str]) -> int:
    """The largest number of runs of light operators, separated by boundaries, on one path."""
    runs: dict[str, int] = {}
    ends_light: dict[str, bool] = {}
    for n in g.nodes:
        best, light_end = 0, False
        for v in n.inputs:
            best, light_end = max((best, light_end), (runs.get(v, 0), ends_light.get(v, False)))
        here = n.user in light
        boundary = not here and bool(boundary_code(g, g.user[n.user]))
        count = best + (here and not light_end)
        for v in n.outputs:
            runs[v] = count
            ends_light[v] = here or (light_end and not boundary)
    return max(runs.values(), default=0)
