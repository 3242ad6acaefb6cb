"""Kernels on disk: found again, ignored when damaged, never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusebound.codegen import cache, jit

TEXT = "define i32 @seven() {\n  ret i32 7\n}\n"


def files(directory: Path) -> list[Path]:
    return sorted(p for p in directory.rglob("*") if p.is_file())


def test_the_second_time_comes_from_disk(tmp_path: Path) -> None:
    first, cached = cache.compile_cached(TEXT, tmp_path)
    assert not cached and len(files(tmp_path)) == 1
    second, cached = cache.compile_cached(TEXT, tmp_path)
    assert cached and second.object == first.object and second.address("seven")


def test_another_text_is_another_kernel(tmp_path: Path) -> None:
    cache.compile_cached(TEXT, tmp_path)
    _, cached = cache.compile_cached(TEXT.replace("7", "8"), tmp_path)
    assert not cached and len(files(tmp_path)) == 2


DAMAGES = {
    "empty": lambda b: b"",
    "no digest": lambda b: b[:20],
    "cut": lambda b: b[:100],
    "one byte short": lambda b: b[:-1],
    "one byte wrong": lambda b: b[:50] + b"X" + b[51:],
    "zeros": lambda b: b"\0" * 400,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_compiled_anew(tmp_path: Path, name: str) -> None:
    cache.compile_cached(TEXT, tmp_path)
    path = files(tmp_path)[0]
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[name](whole))
    compiled, cached = cache.compile_cached(TEXT, tmp_path)
    assert not cached and compiled.address("seven")
    assert path.read_bytes() == whole


def test_a_directory_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    compiled, cached = cache.compile_cached(TEXT, blocked)
    assert not cached and compiled.address("seven")


def test_nothing_is_kept_without_a_directory() -> None:
    compiled, cached = cache.compile_cached(TEXT, None)
    assert not cached and compiled.address("seven")


def test_the_key_holds_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.compile_cached(TEXT, tmp_path)
    host = jit.host()
    monkeypatch.setattr(cache.jit, "host", lambda: jit.Machine(host.cpu, host.features + ",-sse4.2"))
    assert not cache.compile_cached(TEXT, tmp_path)[1]
