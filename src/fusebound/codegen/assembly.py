"""What the assembler made of a kernel, read from its text."""

from __future__ import annotations

import re
from dataclasses import dataclass

_REGISTER = re.compile(r"%[xyz]mm(\d+)")
_SPILL = re.compile(r"(\d+)-byte Spill")
_RELOAD = re.compile(r"-byte (?:Folded )?Reload")


@dataclass(frozen=True, slots=True)
class Resources:
    """Distinct vector registers used, vector spills and reloads in the code, and the object's size in bytes."""

    vector_registers: int
    spills: int
    reloads: int
    code_bytes: int


def resources(asm: str, image: bytes) -> Resources:
    """Count registers and spills in AT&T assembly with LLVM's comments (x86; zero elsewhere)."""
    spills = sum(1 for m in _SPILL.finditer(asm) if int(m[1]) >= 16)
    return Resources(len(set(_REGISTER.findall(asm))), spills, len(_RELOAD.findall(asm)), len(image))
