"""Every knob once: a typed field, its environment variable, its default. Argument > environment > default."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fusebound.errors import UsageError, unknown

POLICIES = ("none", "textbook-strict", "textbook", "elementwise", "loop", "tile", "library")
"""What may be fused, from tight to loose (`gates.policy`)."""

NUMERICS = ("accurate", "eager")
"""What must not change (`gates.precision`)."""


def check_names(policy: str, numerics: str) -> None:
    """Raise UsageError (E101) for a policy or numerics that is none."""
    if policy not in POLICIES:
        raise unknown("policy", policy, POLICIES)
    if numerics not in NUMERICS:
        raise unknown("numerics", numerics, NUMERICS)


_TRUE = frozenset(("1", "true", "yes", "on"))
_FALSE = frozenset(("0", "false", "no", "off", ""))


def _flag(text: str) -> bool:
    low = text.strip().lower()
    if low in _TRUE:
        return True
    if low in _FALSE:
        return False
    raise ValueError("expected 0 or 1")


def _between(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text.strip(), 10)
        if not low <= number <= high:
            raise ValueError(f"expected {low} to {high}")
        return number

    return parse


def _knob(default: Any, env: str, parse: Callable[[str], Any], about: str) -> Any:
    return field(default=default, metadata={"env": env, "parse": parse, "about": about})


@dataclass(frozen=True, slots=True)
class Settings:
    """The knobs of one process. `Settings()` holds the defaults; `current()` reads the environment."""

    debug: int = _knob(
        0,
        "FB_DEBUG",
        _between(0, 6),
        "1 summary, 2 groups with times, 3 verdicts, 4 tile programs, 5 LLVM IR, 6 assembly",
    )
    disable: bool = _knob(False, "FB_DISABLE", _flag, "1: run everything eagerly")
    strict: bool = _knob(False, "FB_STRICT", _flag, "1: raise where the default falls back to eager")
    threads: int = _knob(
        0,
        "FB_THREADS",
        _between(0, 4096),
        "threads of commands and of plans for `host`; 0: as many as torch uses",
    )
    expected_calls: int = _knob(
        1000, "FB_EXPECTED_CALLS", _between(1, 10**12), "calls over which the time to compile is spread"
    )
    pool_mb: int = _knob(
        1024, "FB_POOL_MB", _between(0, 1 << 20), "cap of the output pool in MB (10⁶ bytes); 0: no pool"
    )
    cache_dir: str = _knob("", "FB_CACHE_DIR", str, "where kernels and calibration records are kept")


def knobs() -> tuple[tuple[str, str, object, str], ...]:
    """(field, environment variable, default, what it does) of every knob, for help texts and `doctor`."""
    return tuple((f.name, f.metadata["env"], f.default, f.metadata["about"]) for f in fields(Settings))


def current(environ: Mapping[str, str] | None = None, **arguments: object) -> Settings:
    """The settings in force: `arguments` that are not None, else the environment, else the defaults.

    Raises UsageError for an unknown argument or a value that its variable cannot take.
    """
    env = os.environ if environ is None else environ
    known = {f.name: f for f in fields(Settings)}
    for name in arguments:
        if name not in known:
            raise UsageError(f"unknown setting {name!r}", hint="settings are " + ", ".join(known))
    chosen: dict[str, Any] = {}
    for name, knob in known.items():
        given = arguments.get(name)
        variable: str = knob.metadata["env"]
        if given is not None:
            chosen[name] = _parse(knob.metadata["parse"], str(given), f"argument {name}")
        elif variable in env:
            chosen[name] = _parse(knob.metadata["parse"], env[variable], variable)
    return replace(Settings(), **chosen)


def _parse(parse: Callable[[str], Any], text: str, where: str) -> Any:
    try:
        return parse(text)
    except ValueError as why:
        raise UsageError(f"cannot use {text!r}: {why}", where=where) from None


def cache_directory(settings: Settings | None = None, *, create: bool = True) -> Path:
    """The directory of kernels and records: `cache_dir`, else fusebound's part of the XDG cache.

    With `create` it is made where it is absent, and judged by `make_private`.
    """
    path = Path((settings or current()).cache_dir or _default_directory()).expanduser()
    return make_private(path) if create else path


def _default_directory() -> str:
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification: a relative path is invalid and must be ignored.
    return str((Path(base) if Path(base).is_absolute() else Path("~/.cache")) / "fusebound")


def make_private(path: Path) -> Path:
    """A directory that nobody but this user (and root) can change, made with mode 0700 where it is absent.

    Links are followed first: the result is the real directory. It must be this user's; those above it must be this
    user's or root's; others may write to none of them, unless its sticky bit keeps them from renaming what is not
    theirs (/tmp). Raises UsageError where that is not so, or the directory cannot be made.
    """
    hint = "name a directory of your own in FB_CACHE_DIR"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        real = path.resolve(strict=True)
        found = [(place, place.stat()) for place in (real, *real.parents)]
    except (OSError, RuntimeError, ValueError) as why:
        reason = getattr(why, "strerror", None) or str(why)
        raise UsageError(f"cannot use the cache directory: {reason}", where=str(path), hint=hint) from None
    if os.name != "posix":
        return real
    for place, facts in found:
        own = place == real
        what = "the cache directory" if own else "a directory above the cache directory"
        if facts.st_uid != os.geteuid() and (own or facts.st_uid != 0):
            raise UsageError(f"{what} belongs to another user", where=str(place), hint=hint)
        open_to_others = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if open_to_others and (own or not facts.st_mode & stat.S_ISVTX):
            raise UsageError(f"other users may write to {what}", where=str(place), hint=hint)
    return real
