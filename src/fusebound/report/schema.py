"""The report: one frozen, versioned record of what was decided, built, checked and measured.

Every face (tables, JSON, CSV, tests) reads this record and computes nothing. Times are µs unless a name says
seconds; bytes are exact counts of the analysis; a figure that was not measured is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fusebound.errors import FormatError
from fusebound.files import write_text
from fusebound.report import codec

FORMAT = "fusebound.report/2"


@dataclass(frozen=True, slots=True)
class LevelBytes:
    """Bytes that one memory level serves ("register" is reuse that stays on chip), unfused and fused."""

    level: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of the plan, in execution order. `operators` are the user's, `lines` where they are written.

    `predicted_us` and `eager_us` are the cost model's for the group fused and for its operators run alone;
    `measured_us` is the median of the group's own step.
    """

    id: str
    kind: str
    operators: tuple[str, ...]
    lines: tuple[str, ...]
    launches_before: int
    launches_after: int
    bytes_before: int
    bytes_after: int
    levels: tuple[LevelBytes, ...]
    predicted_us: float
    eager_us: float
    measured_us: float | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Samples of one callable in an interleaved run: median and the middle half of the rounds.

    `memory` is "reused" where outputs are released between calls, "held" where every call keeps its own.
    """

    name: str
    memory: str
    median_us: float
    low_us: float
    high_us: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster than `baseline` the fused program is: the median and its 95 % interval."""

    baseline: str
    memory: str
    value: float
    low: float
    high: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Figures:
    """How far one result lies from another: rms and maximum in the output's unit, the rms as a share of the fp64
    values' rms, the rms in ULP at that rms, and the maximum in ULP of its element (0 for integers)."""

    rms: float
    max: float
    relative: float
    ulps: float
    max_ulps: float


@dataclass(frozen=True, slots=True)
class ClassChange:
    """Elements whose class (NaN, infinite, finite, sign of zero) is not eager's; `kind` is one of
    `verify.classes.KINDS`, `ok` whether it is allowed, `example` the first element in words."""

    kind: str
    count: int
    ok: bool
    example: str


@dataclass(frozen=True, slots=True)
class OutputError:
    """One output on one set of values, three ways: `fused` and `eager` against float64, and fused `apart` from eager.

    `verdict` is one of `verify.result.VERDICTS`; `ok` says whether it is allowed. With `group` it is a value that
    this group of the plan stores.
    """

    output: str
    set: str
    ok: bool
    verdict: str
    fused: Figures
    eager: Figures
    apart: Figures
    detail: str = ""
    changes: tuple[ClassChange, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class Culprit:
    """The smallest part of a program that still fails, on the set of values called `set`.

    `place` says in words which operator, boundary or subgraph it is; `edges` are pairs (producer, consumer) joined
    by " → ". `script` is the file with a stand-alone reproduction, "" where the operators alone are right.
    """

    place: str
    set: str
    groups: tuple[str, ...]
    operators: tuple[str, ...]
    edges: tuple[str, ...]
    shapes: tuple[str, ...]
    verdict: str
    script: str


@dataclass(frozen=True, slots=True)
class Phase:
    """Wall time of one phase of getting this result."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Shares:
    """What part of the program is in kernels of two operators or more, as fractions of 1.

    `time` is of eager's predicted time. `limit` is the speed-up if that part took no time (Amdahl's law);
    None if nothing would be left.
    """

    operators: float
    bytes: float
    time: float
    limit: float | None


@dataclass(frozen=True, slots=True)
class Remainder:
    """One operator outside every fused kernel: its eager cost, and the first code that kept it apart."""

    operator: str
    bytes: int
    predicted_us: float
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """The whole bundle. `ok` is false when a check of the numbers failed, `slower` true when the program lost
    to eager in three runs of three. `warnings` say which timings should not be believed. `errors` has the outputs,
    `stored` the values that kernels store, each on the set of values where it fared worst; `origin` is the group in
    which a failure arises. `judged` says whose numbers those are: those of the plan's kernels ("fused") or of
    another compiler ("inductor").
    """

    model: str
    graph_key: str
    policy: str
    numerics: str
    target: str
    calibrated: bool
    operators: int
    views: int
    launches_before: int
    launches_after: int
    levels: tuple[LevelBytes, ...]
    predicted_us: float
    predicted_eager_us: float
    lower_bound_us: float
    peak_bytes: int
    groups: tuple[GroupRow, ...]
    shares: Shares
    remainders: tuple[Remainder, ...]
    phases: tuple[Phase, ...] = ()
    errors: tuple[OutputError, ...] = ()
    stored: tuple[OutputError, ...] = ()
    origin: str = ""
    judged: str = "fused"
    culprit: Culprit | None = None
    checks: tuple[str, ...] = ()
    timings: tuple[Timing, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    warnings: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict[str, str])
    ok: bool = True
    slower: bool = False
    format: str = FORMAT

    def __str__(self) -> str:
        """The tables that `fusebound run` prints, 110 characters wide."""
        from fusebound.report import tables
        from fusebound.report.layout import plain

        return plain(lambda console: tables.show(console, self), 110)

    @property
    def kernels(self) -> int:
        """How many generated kernels the plan has."""
        return sum(g.kind == "kernel" for g in self.groups)

    @property
    def bytes_before(self) -> int:
        """Bytes to and from memory when every operator runs alone."""
        return sum(x.before for x in self.levels if x.level != "register")

    @property
    def bytes_after(self) -> int:
        """Bytes to and from memory under the plan."""
        return sum(x.after for x in self.levels if x.level != "register")

    def ratio(self, baseline: str = "eager", memory: str = "reused") -> Ratio | None:
        """The measured speed-up over one baseline, or None if it was not measured."""
        for r in self.ratios:
            if (r.baseline, r.memory) == (baseline, memory):
                return r
        return None

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists, `format` first."""
        data: dict[str, Any] = codec.encode(self)
        return {"format": data.pop("format"), **data}

    @staticmethod
    def from_json(data: object) -> Report:
        """The report of a JSON object; raises FormatError (E110) for one of another format or shape."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
            raise FormatError("this is not a fusebound report", hint=f"its `format` should be {FORMAT}")
        return codec.decode(Report, data)

    def save(self, path: str | Path) -> None:
        """Write the report as indented JSON."""
        write_text(Path(path), codec.dumps(self.to_json()))

    @staticmethod
    def load(path: str | Path) -> Report:
        """Read a report that `save` wrote; raises FormatError for a damaged file."""
        data = codec.loads(Path(path))
        try:
            return Report.from_json(data)
        except FormatError as e:
            raise e.within(str(path)) from None
