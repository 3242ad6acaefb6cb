"""Kernels on disk: found again, ignored when damaged, never in the way."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_int32
from pathlib import Path

import pytest

from fusebound import files
from fusebound.codegen import cache, jit

TEXT = "define i32 @seven() {\n  ret i32 7\n}\n"
EIGHT = TEXT.replace("i32 7", "i32 8")


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test hears what was said to others before."""
    monkeypatch.setattr(cache, "_said", set())


def objects(directory: Path) -> list[Path]:
    return sorted(p for p in directory.rglob("*.o") if p.is_file())


def manifest(directory: Path) -> Path:
    return directory / "kernels" / "MANIFEST"


def answer(compiled: jit.Compiled) -> int:
    return CFUNCTYPE(c_int32)(compiled.address("seven"))()


def once(directory: Path, text: str = TEXT) -> bool:
    """Compile the function that returns 7 and run it: whether it came from disk."""
    compiled, cached = cache.compile_cached(text, directory)
    assert answer(compiled) == (7 if text is TEXT else 8)
    return cached


def test_the_second_time_comes_from_disk(tmp_path: Path) -> None:
    first, cached = cache.compile_cached(TEXT, tmp_path)
    assert not cached and len(objects(tmp_path)) == 1
    second, cached = cache.compile_cached(TEXT, tmp_path)
    assert cached and second.object == first.object and second.address("seven")


def test_files_are_private_and_the_manifest_is_sha256sums(tmp_path: Path) -> None:
    once(tmp_path)
    once(tmp_path, EIGHT)
    assert (tmp_path / "kernels").stat().st_mode & 0o777 == 0o700
    assert all(p.stat().st_mode & 0o777 == 0o600 for p in (*objects(tmp_path), manifest(tmp_path)))
    wanted = {f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}" for p in objects(tmp_path)}
    assert set(manifest(tmp_path).read_text().splitlines()) == wanted


def test_another_text_is_another_kernel(tmp_path: Path) -> None:
    once(tmp_path)
    assert not once(tmp_path, EIGHT) and len(objects(tmp_path)) == 2


def _swapped(p: Path) -> None:
    """The content of another key, which is whole and in the manifest under its own name."""
    once(p.parent.parent, EIGHT)
    (other,) = (q for q in objects(p.parent) if q != p)
    p.write_bytes(other.read_bytes())


def _linked(p: Path) -> None:
    p.rename(p.with_name("elsewhere"))
    p.symlink_to(p.with_name("elsewhere"))


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(p: Path) -> None:
        p.write_bytes(change(p.read_bytes()))

    return damage


def _pipe(p: Path) -> None:
    p.unlink()
    os.mkfifo(p)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "empty": _bytes(lambda b: b""),
    "cut": _bytes(lambda b: b[:100]),
    "one byte short": _bytes(lambda b: b[:-1]),
    "one byte more": _bytes(lambda b: b + b"\0"),
    "one byte wrong": _bytes(lambda b: b[:50] + b"X" + b[51:]),
    "zeros": _bytes(lambda b: b"\0" * 400),
    "another key's": _swapped,
    "a link": _linked,
    "a pipe": _pipe,
    "missing": lambda p: p.unlink(),
    "no manifest": lambda p: (p.parent / "MANIFEST").unlink(),
    "an empty manifest": lambda p: (p.parent / "MANIFEST").write_text(""),
    "bytes for a manifest": lambda p: (p.parent / "MANIFEST").write_bytes(b"\xff\x00" * 200),
    "half a line": lambda p: (p.parent / "MANIFEST").write_text((p.parent / "MANIFEST").read_text()[:70]),
    "another's digest": lambda p: (p.parent / "MANIFEST").write_text(f"{'0' * 64}  {p.name}\n"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_damaged_is_compiled_anew_and_kept_again(tmp_path: Path, name: str) -> None:
    once(tmp_path)
    (path,) = objects(tmp_path)
    whole = path.read_bytes()
    DAMAGES[name](path)
    assert not once(tmp_path)
    once(tmp_path)  # a line that was appended to half a line is lost with it
    assert once(tmp_path)
    assert path.read_bytes() == whole and not path.is_symlink()


@pytest.mark.parametrize("damage", ["folder", "pipe", "link"])
def test_a_manifest_that_is_no_file(tmp_path: Path, damage: str) -> None:
    once(tmp_path)
    path = manifest(tmp_path)
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage == "pipe":
        os.mkfifo(path)
    else:
        (tmp_path / "victim").write_text("kept")
        path.symlink_to(tmp_path / "victim")
    with pytest.warns(cache.CacheNotice, match="cannot write to"):
        assert not once(tmp_path)
    assert damage != "link" or (tmp_path / "victim").read_text() == "kept"


def test_a_file_for_a_directory_costs_only_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    with pytest.warns(cache.CacheNotice, match="cannot use the cache directory"):
        assert not once(blocked)
    assert blocked.read_text() == "no directory"


def _of_another(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 12345, 12345)


STRANGERS: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "the directory is another's": ("a/b", _of_another, "a directory above the cache directory belongs"),
    "the kernels are another's": ("a/b/kernels", _of_another, "the cache directory belongs to another user"),
    "a parent is another's": ("a", _of_another, "a directory above the cache directory belongs"),
    "all may write to a parent": ("a", lambda p: p.chmod(0o777), "write to a directory above"),
    "a group may write to it": (
        "a/b/kernels",
        lambda p: p.chmod(0o770),
        "other users may write to the cache",
    ),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_directory_that_others_can_change_is_not_used(tmp_path: Path, name: str) -> None:
    """The kernels work; what lies there is neither loaded nor touched; it is said once."""
    where, change, what = STRANGERS[name]
    directory = tmp_path / "a" / "b"
    once(directory)
    before = manifest(directory).read_bytes()
    change(tmp_path / where)
    with pytest.warns(cache.CacheNotice, match=what) as heard:
        assert not once(directory)
        assert not once(directory, EIGHT)
    assert len(heard) == 1
    assert manifest(directory).read_bytes() == before and len(objects(directory)) == 1


def test_a_link_to_another_users_directory_is_not_used(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    once(theirs)
    _of_another(theirs / "kernels")
    (tmp_path / "mine").symlink_to(theirs)
    with pytest.warns(cache.CacheNotice, match="belongs to another user"):
        assert not once(tmp_path / "mine")


def test_a_sticky_directory_above_is_no_danger(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    assert not once(tmp_path / "tmp" / "cache") and once(tmp_path / "tmp" / "cache")


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled and run, what was kept stays, nothing is left behind, and it is said once."""
    once(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.warns(cache.CacheNotice, match="No space left") as heard:
        assert not once(tmp_path, EIGHT)
        assert not once(tmp_path, EIGHT)
    assert len(heard) == 1
    assert once(tmp_path), "the entry from before is still used"
    assert len(list((tmp_path / "kernels").iterdir())) == 2


@contextmanager
def no_room() -> Iterator[None]:
    """Files of at most 100 bytes; not for longer than needed, for the test runner writes too."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def test_a_write_that_stops_in_the_middle(tmp_path: Path) -> None:
    with pytest.warns(cache.CacheNotice, match="File too large"), no_room():
        assert not once(tmp_path)
    assert not list((tmp_path / "kernels").iterdir())


def test_a_directory_that_can_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere, so that the refusal is simulated; what is there is still used."""
    once(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(cache, "write_bytes", refuse)
    assert once(tmp_path)
    with pytest.warns(cache.CacheNotice, match="Read-only"):
        assert not once(tmp_path, EIGHT)


WRITER = """
import sys, warnings
from pathlib import Path
from fusebound.codegen import cache
warnings.simplefilter("error")
print("ready", flush=True)
for i in range(10**6):
    cache.compile_cached("define i32 @seven() {\\n  ret i32 %d\\n}\\n" % (i % int(sys.argv[2])), Path(sys.argv[1]))
    if i == int(sys.argv[3]):
        break
"""


def writer(directory: Path, texts: int, last: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WRITER, str(directory), str(texts), str(last)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def whole(directory: Path) -> int:
    """How many entries there are; each must be what the manifest says."""
    place = directory / "kernels"
    known = cache._digests(place)
    for name, digest in known.items():
        assert hashlib.sha256((place / name).read_bytes()).hexdigest() == digest
    return len(known)


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    for process in [writer(tmp_path, 8, 7) for _ in range(2)]:
        process.communicate()
        assert process.returncode == 0
    assert whole(tmp_path) == 8
    assert len(list((tmp_path / "kernels").iterdir())) == 9


def test_a_process_is_killed_while_it_writes(tmp_path: Path) -> None:
    """Whatever the moment: entries are whole, and the next process uses them and adds its own."""
    process = writer(tmp_path, 10**6, 10**6)
    assert process.stdout is not None and process.stdout.readline()
    while not manifest(tmp_path).exists():
        time.sleep(0.001)
    process.kill()
    process.communicate()
    assert whole(tmp_path) >= 1
    once(tmp_path, EIGHT)
    assert once(tmp_path, EIGHT)


def test_nothing_is_kept_without_a_directory() -> None:
    compiled, cached = cache.compile_cached(TEXT, None)
    assert not cached and answer(compiled) == 7


def test_the_key_holds_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.compile_cached(TEXT, tmp_path)
    host = jit.host()
    monkeypatch.setattr(cache.jit, "host", lambda: jit.Machine(host.cpu, host.features + ",-sse4.2"))
    assert not cache.compile_cached(TEXT, tmp_path)[1]


def test_a_notice_can_be_silenced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("ignore", cache.CacheNotice)
        assert not once(tmp_path / "file")
    assert not heard
