"""Faults below the tile program, in the LLVM text: masks of tails, first values, accumulators, the trees over lanes."""

# A statement's kind is checked where its number comes from; lambdas bind their own parameters.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportPrivateUsage=false

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

TextFault = tuple[str, str, Callable[[str], str]]

_MASK = re.compile(r"= icmp slt <\d+ x i64> <i64 0, (i64 1, .*?)>, %v\d+$", re.MULTILINE)
_START = re.compile(
    r"^  store <(\d+) x (float|double|i64|i32)> splat \((?:float|double|i64|i32) ([^)]*)\), ptr (%v\d+)", re.M
)
_UPPER = re.compile(r"<(\d+) x i32> <i32 (\d+)((?:, i32 \d+)*)>$", re.MULTILINE)
_CELLS = re.compile(r"((?:^  %v\d+ = load <\d+ x \w+>, ptr %v\d+, align 64\n){2,})", re.MULTILINE)
_SUM = re.compile(r"^  (%v\d+) = fadd (<\d+ x double>) (%v\d+), (%v\d+)$", re.MULTILINE)
_BOUND = re.compile(r"= icmp uge (i64|<\d+ x i64>) ")


def faults(text: str) -> Iterator[TextFault]:
    """Every fault of this kind, at every site of a module's text."""
    yield from _masks(text)
    yield from _first_values(text)
    yield from _trees(text)
    for what, bits in (("accumulated in bfloat16", True), ("accumulated in float32", False)):
        if _SUM.search(text) and "fptrunc" in text:
            yield what, "every sum", lambda t, bits=bits: _SUM.sub(lambda m: _narrowed(m, bits), t)
    yield from _each(text, _BOUND, "index checked one too far", lambda m: m[0].replace("uge", "ugt"))


def sums_exchanged(text: str) -> Iterator[TextFault]:
    """Correct: every float64 addition of vectors with its terms exchanged."""
    for i, m in enumerate(_SUM.finditer(text)):
        new = f"  {m[1]} = fadd {m[2]} {m[4]}, {m[3]}"
        yield (
            "terms of a sum exchanged",
            f"fadd {i}",
            lambda t, m=m, new=new: t[: m.start()] + new + t[m.end() :],
        )


def _each(
    text: str, pattern: re.Pattern[str], what: str, change: Callable[[re.Match[str]], str]
) -> Iterator[TextFault]:
    for i, m in enumerate(pattern.finditer(text)):
        new = change(m)
        if new != m[0]:
            yield what, f"{pattern_name(m)} {i}", lambda t, m=m, new=new: t[: m.start()] + new + t[m.end() :]


def pattern_name(m: re.Match[str]) -> str:
    """The instruction that a match lies in, without its registers."""
    return " ".join(w for w in m[0].split()[:5] if not w.startswith("%"))


def _masks(text: str) -> Iterator[TextFault]:
    yield from _each(text, _MASK, "tail mask one lane too wide", lambda m: m[0].replace("slt", "sle"))
    yield from _each(
        text,
        _MASK,
        "tail mask one lane short",
        lambda m: m[0].replace("<i64 0, ", "<i64 1, ", 1).replace(m[1], _later(m[1])),
    )
    yield from _each(text, _MASK, "tail mask inverted", lambda m: m[0].replace("slt", "sge"))


def _later(ids: str) -> str:
    return re.sub(r"\d+$|(?<=i64 )\d+", lambda n: str(int(n[0]) + 1), ids)


def _first_values(text: str) -> Iterator[TextFault]:
    def other(m: re.Match[str]) -> str:
        value = m[3]
        if m[2] in ("float", "double"):
            new = "0x3FF0000000000000" if value == "0x0000000000000000" else "0x0000000000000000"
        else:
            new = "1" if value == "0" else "0"
        return m[0].replace(f" {value})", f" {new})")

    def finite(m: re.Match[str]) -> str:
        least = {"0xFFF0000000000000": "0xC7EFFFFFE0000000", "0x7FF0000000000000": "0x47EFFFFFE0000000"}
        return m[0].replace(m[3], least.get(m[3], m[3])) if m[2] == "float" else m[0]

    yield from _each(text, _START, "reduction starts elsewhere", other)
    yield from _each(text, _START, "reduction starts finite", finite)


def _trees(text: str) -> Iterator[TextFault]:
    def half(m: re.Match[str]) -> str:
        return re.sub(r"(?<=i32 )\d+", lambda n: str(int(n[0]) - int(m[2])), m[0][m[0].index("> <") :]).join(
            (m[0][: m[0].index("> <")], "")
        )

    def upper(m: re.Match[str]) -> str:
        return half(m) if int(m[2]) == int(m[1]) else m[0]

    yield from _each(text, _UPPER, "one half of the lanes twice", upper)

    def first(m: re.Match[str]) -> str:
        cells = re.findall(r"ptr (%v\d+)", m[0])
        kinds = set(re.findall(r"load (<.*?>)", m[0]))
        return m[0].replace(cells[-1], cells[0]) if len(kinds) == 1 else m[0]

    yield from _each(text, _CELLS, "one vector of an accumulator twice", first)


def _narrowed(m: re.Match[str], bits: bool) -> str:
    """A float64 sum, rounded to float32 or cut to bfloat16."""
    r, kind = m[1], m[2]
    n = kind.split()[0][1:]
    lines = [
        f"  {r}.w = fadd {kind} {m[3]}, {m[4]}",
        f"  {r}.f = fptrunc {kind} {r}.w to <{n} x float>",
    ]
    narrow = f"{r}.f"
    if bits:
        lines += [
            f"  {r}.i = bitcast <{n} x float> {r}.f to <{n} x i32>",
            f"  {r}.a = and <{n} x i32> {r}.i, splat (i32 -65536)",
            f"  {r}.b = bitcast <{n} x i32> {r}.a to <{n} x float>",
        ]
        narrow = f"{r}.b"
    return "\n".join((*lines, f"  {r} = fpext <{n} x float> {narrow} to {kind}"))
