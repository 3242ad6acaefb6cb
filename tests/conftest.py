"""What all tests share: a cache of their own, the shared data where it is present, golden files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="Rewrite the files under tests/golden.")


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels and calibration records of the user are neither read nor written by tests."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("cache")
        path.chmod(0o700)
        patch.setenv("FB_CACHE_DIR", str(path))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data beside the checkout; tests over it are skipped where it is absent."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip("the folder ../shared is absent")
    return path


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares with tests/golden/name; `--update-golden` rewrites it."""
    update = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing: run pytest with --update-golden"
        assert path.read_text(encoding="utf-8") == text

    return check
