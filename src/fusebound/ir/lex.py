"""Tokens of the graph's text form, and its way of quoting strings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fusebound.errors import FormatError

BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_.#]*")
"""Names that stand without quotes."""

BARE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.#]*")
"""Value ids and tokens: their sign comes first, so that they may start with a digit."""

MAX_DIGITS = 400
"""Python itself refuses to read integers of a few thousand digits; no size or literal comes near this."""

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r]+)
  | (?P<comment>\#.*)
  | (?P<value>%(?:[A-Za-z0-9_][A-Za-z0-9_.\#]*|"(?:[^"\\]|\\.)*"))
  | (?P<token>@(?:[A-Za-z0-9_][A-Za-z0-9_.\#]*|"(?:[^"\\]|\\.)*"))
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<code>`(?:[^`\\]|\\.)*`)
  | (?P<float>-?(?:\d+\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+|(?:inf|nan)(?![A-Za-z0-9_.\#])))
  | (?P<int>-?\d+)
  | (?P<name>[A-Za-z_][A-Za-z0-9_.\#]*)
  | (?P<mark>->|<-|[()\[\]{}=:,~])
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r'\\(u\{([0-9a-f]{1,6})\}|[nt\\"`])')
_SHORT = {"\n": "\\n", "\t": "\\t", "\\": "\\\\"}
_LONG = {"n": "\n", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Lexeme:
    """One token: `kind` is a group of the pattern above or "end"; `text` is decoded; `column` starts at 0."""

    kind: str
    text: str
    column: int

    def __str__(self) -> str:
        return "the end of the line" if self.kind == "end" else f"'{self.text}'"


def quote(text: str, mark: str = '"') -> str:
    """Quote any string on one line: printable characters stay, all others become `\\u{hex}`."""
    out = [mark]
    for c in text:
        if c in _SHORT:
            out.append(_SHORT[c])
        elif c == mark:
            out.append("\\" + c)
        else:
            out.append(c if c.isprintable() else f"\\u{{{ord(c):x}}}")
    return "".join((*out, mark))


def unquote(text: str) -> str:
    """The inverse of `quote`, for a token that the pattern has matched; ValueError for an unknown escape."""
    body = text[1:-1]
    at, out = 0, list[str]()
    while (k := body.find("\\", at)) >= 0:
        m = _ESCAPE.match(body, k)
        if m is None:
            raise ValueError(f"unknown escape {body[k : k + 2]}")
        out += body[at:k], chr(int(m[2], 16)) if m[2] else _LONG.get(m[1], m[1])
        at = m.end()
    return "".join((*out, body[at:]))


def name(text: str) -> str:
    """A name as it is printed: bare where the pattern allows, quoted otherwise."""
    return text if BARE.fullmatch(text) and text not in ("inf", "nan") else quote(text)


def prefixed(sign: str, text: str) -> str:
    """`%id` or `@token`, quoted after the sign where necessary."""
    return sign + (text if BARE_ID.fullmatch(text) else quote(text))


class Text:
    """The lines of a text, and errors that show the faulty place with a line around it."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")

    def error(self, row: int, column: int, what: str) -> FormatError:
        """A FormatError for `row` and `column` (from 0) that quotes the neighbourhood."""
        shown: list[str] = []
        for k in range(max(row - 1, 0), min(row + 2, len(self.lines))):
            left = max(column - 70, 0) if k == row else 0
            shown.append(f"{k + 1:5} | {self.lines[k][left : left + 110]}")
            if k == row:
                shown.append(f"      | {' ' * (column - left)}^")
        return FormatError(f"{what}\n" + "\n".join(shown), where=f"line {row + 1}, column {column + 1}")

    def lexemes(self, row: int) -> list[Lexeme]:
        """The tokens of one line, without blanks and comments, with an "end" after the last."""
        line, at, out = self.lines[row], 0, list[Lexeme]()
        while at < len(line):
            m = _TOKEN.match(line, at)
            if m is None:
                raise self.error(row, at, f"unexpected character {line[at]!r}")
            kind = m.lastgroup or ""
            if kind not in ("space", "comment"):
                out.append(Lexeme(kind, self._decode(row, at, kind, m[0]), at))
            at = m.end()
        return [*out, Lexeme("end", "", len(line))]

    def _decode(self, row: int, column: int, kind: str, text: str) -> str:
        if kind == "int" and len(text) > MAX_DIGITS:
            raise self.error(row, column, f"an integer of {len(text)} digits")
        try:
            if kind in ("string", "code"):
                return unquote(text)
            if kind in ("value", "token"):
                return unquote(text[1:]) if text[1] == '"' else text[1:]
        except (ValueError, OverflowError) as e:
            raise self.error(row, column, str(e)) from None
        return text
