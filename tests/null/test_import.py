"""`import fusebound` and `--help` stay light: no torch, no numpy, no rich, and quick."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "rich", "llvmlite")

PROBE = """
import json, sys, time
start = time.perf_counter()
{body}
taken = time.perf_counter() - start
print()
print(json.dumps({{"loaded": [m for m in {heavy!r} if m in sys.modules], "ms": 1e3 * taken}}))
"""


def probe(body: str) -> dict[str, object]:
    """What a fresh interpreter has loaded after `body`, and how long that took."""
    code = PROBE.format(body=body, heavy=HEAVY)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return json.loads(out.splitlines()[-1])


@pytest.mark.parametrize(
    "body",
    [
        "import fusebound",
        "import fusebound.cli.main as m; m.invoke(['--help'])",
        "import fusebound.cli.main as m; m.invoke(['--version'])",
        "import fusebound.cli.main as m; m.invoke(['run', '--list'])",
        "import fusebound.cli.main as m; m.invoke(['rnu'])",
        "from fusebound import scenarios; scenarios.names()",
    ],
)
def test_nothing_heavy_is_loaded(body: str) -> None:
    found = probe(body)
    assert found["loaded"] == []
    print(f"{body}: {found['ms']:.0f} ms")


@pytest.mark.parametrize("command", ["run", "plan", "why", "log", "explain", "verify", "bench", "kernel"])
def test_help_of_a_command_is_light(command: str) -> None:
    assert probe(f"import fusebound.cli.main as m; m.invoke([{command!r}, '--help'])")["loaded"] == []


def test_public_names_are_listed_without_being_loaded() -> None:
    body = "import fusebound as fb; assert {'capture', 'compile', 'plan', 'Plan', 'Graph'} <= set(dir(fb))"
    assert probe(body)["loaded"] == []
