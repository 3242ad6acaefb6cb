"""The user's operators as comments in the assembly: line information on the way down, comments on the way back."""

from __future__ import annotations

import re

from fusebound.codegen.tile import Apply, Draw, Kernel, statements

_FIRST = 10
"""Metadata numbers below belong to the module itself."""
_LOC = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)\b.*$", re.MULTILINE)
_DEBUG_SECTION = re.compile(r"^\s*\.section\s+\.debug.*\Z", re.MULTILINE | re.DOTALL)
_NOISE = re.compile(r"^\s*\.(?:file|cfi_\w+)\b.*\n|^\.L(?:tmp|func_begin)\d+:.*\n", re.MULTILINE)


def notes(k: Kernel) -> list[str]:
    """The operators that the program's statements name, each once; line n stands for entry n - 1."""
    found = (s.note for nest in k.nests for s in statements(nest.body) if isinstance(s, (Apply, Draw)))
    return ["", *dict.fromkeys(n for n in found if n)]


class Annotations:
    """Debug metadata in which line numbers stand for operators."""

    subprogram = " !dbg !4"

    def __init__(self, k: Kernel) -> None:
        self._notes = notes(k)
        self._line = {n: i + 1 for i, n in enumerate(self._notes)}
        self._name = k.name

    def location(self, note: str) -> str:
        """What an instruction of that operator carries."""
        return f", !dbg !{_FIRST + self._line.get(note, 1)}"

    def metadata(self) -> str:
        """The module's metadata."""
        lines = [
            "!llvm.dbg.cu = !{!2}",
            "!llvm.module.flags = !{!1}",
            '!1 = !{i32 2, !"Debug Info Version", i32 3}',
            "!2 = distinct !DICompileUnit(language: DW_LANG_C99, file: !3, isOptimized: true, "
            "emissionKind: LineTablesOnly)",
            f'!3 = !DIFile(filename: "{self._name}", directory: "")',
            f'!4 = distinct !DISubprogram(name: "{self._name}", file: !3, unit: !2, type: !5, '
            "spFlags: DISPFlagDefinition)",
            "!5 = !DISubroutineType(types: !6)",
            "!6 = !{}",
        ]
        lines += [f"!{_FIRST + i} = !DILocation(line: {i}, scope: !4)" for i in self._line.values()]
        return "\n".join(lines)


def restore(asm: str, k: Kernel) -> str:
    """Assembly with each line marker replaced by the operator that it stands for."""
    table = notes(k)

    def comment(m: re.Match[str]) -> str:
        line = int(m[1])
        return f"\t# {table[line - 1]}" if 1 < line <= len(table) else ""

    text = _NOISE.sub("", _LOC.sub(comment, _DEBUG_SECTION.sub("", asm)))
    return re.sub(r"\n(?:[ \t]*\n)+", "\n", text)
