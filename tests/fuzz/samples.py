"""One valid file of every format, small, with every kind of statement in it."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import torch

import fusebound as fb
from fusebound.ir import json as graph_json

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def chain(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    a = torch.softmax(x * 2 + y, -1)
    b = torch.cat([a.flip(0), y.t().reshape(3, 4)], 1)[:, 1::2].to(torch.float64)
    return a, b.sum(0), torch.nn.functional.pad(x[i], (1, 0)), (x @ y.t()).argmax(1)


def update(x: torch.Tensor, y: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    x.mul_(y).add_(1)
    z = torch.cond(p, lambda t: t.exp() * 2, lambda t: t - 1, (x,))
    return torch.nn.functional.dropout(z, 0.5, True) + x


def graphs() -> list[fb.Graph]:
    return [
        fb.capture(chain, X.clone(), X.clone(), torch.tensor([0, 2])),
        fb.capture(update, X.clone(), X.clone(), torch.tensor(True)),
    ]


REGION: dict[str, Any] = {
    "inputs": [
        {"name": "x", "shape": [3, 4], "dtype": "float32", "stride": [4, 1], "mean": 0.5, "std": 2.0},
        {"name": "m", "shape": [3], "dtype": "float32", "stride": [1]},
        {"name": "n", "scalar": 2},
    ],
    "nodes": [
        {"name": "y", "target": "torch.nn.functional.relu", "args": [{"$": "x"}], "kwargs": {}},
        {"name": "z", "target": "operator.mul", "args": [{"$": "y"}, {"$": "n"}], "kwargs": {}},
        {"name": "s", "target": "method:softmax", "args": [{"$": "z"}, 1], "kwargs": {}},
        {"name": "u", "target": "aten:aten.add.Tensor", "args": [{"$": "s"}, {"$": "x"}], "kwargs": {"alpha": 2}},
        {"name": "h", "target": "builtin.getattr", "args": [{"$": "x"}, "shape"], "kwargs": {}},
        {"name": "g", "target": "operator.getitem",
         "args": [{"$": "u"}, {"tuple": [{"slice": [0, 2, None]}, {"ellipsis": 0}]}],
         "kwargs": {}},
        {"name": "c", "target": "method:to", "args": [{"$": "g"}, {"dtype": "torch.bfloat16"}], "kwargs": {}},
    ],
    "outputs": ["c", "u"],
}  # fmt: skip

RULES = """
forbid = [["add", "mul"]]
require = [["mul", "softmax*"]]

[[tau]]
operators = ["softmax"]
absolute = 1e-6
ulp = 4
"""


def graph_files() -> list[dict[str, Any]]:
    return [graph_json.dump(g) for g in graphs()]


def plan_files() -> list[dict[str, Any]]:
    made = [
        fb.plan(
            g,
            hardware="cpu-avx512",
            expected_calls=10**6,
            tau={"ulp": 8},
            rules={"forbid": [["add", "mul"]]},
        )
        for g in graphs()
    ]
    return [json.loads(json.dumps(p.to_json())) for p in made]


def report_file() -> dict[str, Any]:
    from tests.unit.report.test_schema import sample

    return sample().to_json()


def record_file() -> dict[str, Any]:
    from tests.unit.target.test_target import a_record

    return json.loads(json.dumps(a_record("f").dump()))


class Program(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.table = torch.arange(4.0)

    def forward(self, x: torch.Tensor, n: int, *, z: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"a": self.linear(x).relu() + z * n, "b": (x * self.table).sum(-1, dtype=torch.float64)}


def archive_files() -> dict[str, bytes]:
    """The files of a `.pt2` archive, by name."""
    made = io.BytesIO()
    program = torch.export.export(Program(), (X, 2), {"z": torch.ones(4)}, dynamic_shapes=None, strict=False)
    torch.export.save(program, made)
    with zipfile.ZipFile(made) as archive:
        return {n: archive.read(n) for n in archive.namelist()}


def toml(data: Any) -> str:
    """Plain data as TOML, as far as it goes: values that TOML lacks are written as JSON has them, to be refused."""
    if not isinstance(data, dict):
        return json.dumps(data)
    return "\n".join(f"{json.dumps(k)} = {_inline(v)}" for k, v in data.items())


def _inline(x: Any) -> str:
    match x:
        case dict():
            return "{" + ", ".join(f"{json.dumps(k)} = {_inline(v)}" for k, v in x.items()) + "}"
        case list():
            return "[" + ", ".join(map(_inline, x)) + "]"
        case _:
            return json.dumps(x)
