"""Settings: argument > environment > default; bad values and unsafe cache directories are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusebound.errors import UsageError
from fusebound.settings import Settings, cache_directory, current, knobs


def test_argument_beats_environment_beats_default() -> None:
    env = {"FB_DEBUG": "3", "FB_THREADS": "4"}
    assert current({}) == Settings()
    assert current(env).debug == 3
    assert current(env, debug=1).debug == 1
    assert current(env, debug=None).debug == 3


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("FB_DEBUG", "7"),
        ("FB_DEBUG", "high"),
        ("FB_DISABLE", "maybe"),
        ("FB_THREADS", "-1"),
        ("FB_POOL_MB", "1.5"),
    ],
)
def test_a_bad_value_names_its_variable(variable: str, value: str) -> None:
    with pytest.raises(UsageError, match=variable):
        current({variable: value})


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown setting"):
        current({}, colour="red")


def test_flags_take_the_usual_spellings() -> None:
    assert [current({"FB_DISABLE": v}).disable for v in ("1", "yes", "0", "off", "")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_every_knob_has_one_variable() -> None:
    variables = [env for _, env, _, _ in knobs()]
    assert len(set(variables)) == len(variables) and all(v.startswith("FB_") for v in variables)


def test_the_cache_directory_is_made_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FB_CACHE_DIR", str(tmp_path / "a" / "b"))
    path = cache_directory()
    assert path == tmp_path / "a" / "b" and path.stat().st_mode & 0o777 == 0o700


def test_a_cache_directory_open_to_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("FB_CACHE_DIR", str(tmp_path))
    with pytest.raises(UsageError, match="write"):
        cache_directory()


def test_a_file_in_the_place_of_the_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_text("")
    monkeypatch.setenv("FB_CACHE_DIR", str(tmp_path / "f"))
    with pytest.raises(UsageError, match="cannot use the cache directory"):
        cache_directory()


def test_xdg_is_followed_and_a_relative_one_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FB_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x/y")
    assert cache_directory(create=False) == Path("/x/y/fusebound")
    monkeypatch.setenv("XDG_CACHE_HOME", "y")
    assert cache_directory(create=False) == Path("~/.cache/fusebound").expanduser()
