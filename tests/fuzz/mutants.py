"""Seeded damage to files: to JSON values, to lines of a graph's text, to bytes."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 3, 17, 2**31, 2**40, 2**63, -(2**63), 10**12, 10**30, 10**400, 0.5, -0.0, 1e308, float("nan"),
    float("inf"), float("-inf"),
)  # fmt: skip
TEXTS = (
    "", " ", "\0", "a\nb", "\x1b[31m", "\ud800", "ß∑漢", "x" * 5000, "../../etc/passwd", "/dev/zero", "%x",
    "@torch.float32", "os.system", "builtins.eval", "aten.save.default", "aten.from_file.default", "torch.load",
    "aten.resize_.default", "operator.attrgetter", "higher_order.print", "__import__('os').mkdir('payload-was-run')",
    "float32", "f32", "bool", "complex64", "float99", "sum", "exp", "reshape", "gather", "kernel", "framework",
    "'", '"', "\\", "{}", "module:x",
)  # fmt: skip
DEEP = 100_000


def atoms(r: Random) -> Any:
    """A value that no reader expects where it comes to stand."""
    return r.choice((r.choice(NUMBERS), r.choice(TEXTS), None, True, False, [], {}, [[]], {"": 0}, [1, "a"]))


def spots(x: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    for k, v in list(x.items()) if isinstance(x, dict) else list(enumerate(x)) if isinstance(x, list) else ():
        yield x, k
        yield from spots(v)


def damaged_json(r: Random, data: Any) -> Any:
    """One to three changes: a value exchanged, dropped, doubled, moved, nested, or a key renamed."""
    data = copy.deepcopy(data)
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        found = list(spots(data))
        if not found:
            return atoms(r)
        where, key = r.choice(found)
        other, place = r.choice(found)
        match r.randrange(8):
            case 0 | 1:
                where[key] = atoms(r)
            case 2:
                del where[key]
            case 3:
                where[key] = copy.deepcopy(other[place])
            case 4 if isinstance(where, list):
                where.insert(r.randrange(len(where) + 1), copy.deepcopy(where[key]))
            case 5 if isinstance(where, dict):
                where[r.choice(TEXTS)] = where.pop(key)
            case 6 if isinstance(where, list):
                r.shuffle(where)
            case _:
                where[key] = [where[key]]
    return data


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[%@]?[A-Za-z_][\w.#]*|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|->|<-|\S')


def damaged_lines(r: Random, lines: list[str]) -> list[str]:
    """One to three changes to a graph's text: a token exchanged for another of it or a hostile one, lines moved."""
    lines = list(lines)
    pool = [t for line in lines for t in _TOKEN.findall(line)]
    for _ in range(r.choice((1, 1, 2, 3))):
        k = r.randrange(len(lines))
        tokens = list(_TOKEN.finditer(lines[k]))
        match r.randrange(8):
            case 0:
                lines.insert(r.randrange(len(lines)), lines[k])
            case 1 if len(lines) > 1:
                del lines[k]
            case 2:
                other = r.randrange(len(lines))
                lines[k], lines[other] = lines[other], lines[k]
            case _ if tokens:
                at = r.choice(tokens)
                lines[k] = lines[k][: at.start()] + _instead(r, at[0], pool) + lines[k][at.end() :]
            case _:
                lines[k] += r.choice(pool)
    return lines


def _instead(r: Random, token: str, pool: list[str]) -> str:
    if token.lstrip("-")[:1].isdigit() and r.random() < 0.7:
        return str(r.choice(NUMBERS)) if r.random() < 0.5 else str(r.randrange(-2, 20))
    like = [t for t in pool if t[:1] == token[:1]] if r.random() < 0.5 else pool
    chosen = r.choice(like) if r.random() < 0.75 else r.choice((json.dumps(r.choice(TEXTS)), r.choice(TEXTS)))
    return chosen.replace("\n", " ") if r.random() < 0.9 else ""


def damaged_bytes(r: Random, data: bytes) -> bytes:
    """Cut, flipped, doubled or in another encoding."""
    k = r.randrange(len(data) + 1)
    match r.randrange(8):
        case 0 | 1:
            return data[:k]
        case 2 | 3:
            made = bytearray(data)
            for _ in range(r.randrange(1, 5)):
                made[r.randrange(len(made))] ^= 1 << r.randrange(8)
            return bytes(made)
        case 4:
            return data[:k] + r.randbytes(r.randrange(1, 9)) + data[k:]
        case 5:
            return data[:k] + data[k + r.randrange(1, 40) :]
        case 6:
            return r.choice(
                (
                    b"\xef\xbb\xbf" + data,
                    data.decode("latin-1").encode("utf-16"),
                    data + data,
                    b"\0" * len(data),
                )
            )
        case _:
            return data[:k] + b"[" * DEEP + data[k:]
