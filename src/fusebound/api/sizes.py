"""Sizes as torch writes them into archives: arithmetic over named integers, read as text and never evaluated.

torch reads them with sympy, which evaluates them as Python. What may pass is a closed set of syntax: numbers, names of
symbols, arithmetic, comparisons, and calls of sympy's and torch's functions of integers. Source of the forms:
`sympy.srepr`, by which torch 2.13 writes (`Mul(Integer(2), Symbol('s0', positive=True, integer=True))`), and `str`, by
which older versions did (`2*s0`).
"""

from __future__ import annotations

import ast
import re

_SYMBOL = re.compile(r"[a-z]{1,8}_?\d+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
_NAMES = frozenset(("true", "false", "oo", "int_oo"))
_SYMPY = """
Abs Add And Eq Equality Float Ge GreaterThan Gt Integer Le LessThan Lt Max Min Mod Mul Ne Not Or Pow Rational
StrictGreaterThan StrictLessThan Symbol Unequality ceiling floor
"""
_TORCH = """
CeilDiv CeilToInt CleanDiv FloatPow FloatTrueDiv FloorDiv FloorToInt Identity IntTrueDiv LShift ModularIndexing
PowByNatural PythonMod RShift RoundDecimal RoundToInt ToFloat TruncToFloat TruncToInt Where
"""
_FUNCTIONS = frozenset((_SYMPY + _TORCH).split())
_POWERS = frozenset(("Pow", "PowByNatural", "FloatPow", "LShift"))
_LARGEST_POWER, _LONGEST = 16, 10_000
_QUOTED = {"Symbol": _SYMBOL, "Float": _NUMBER}
"""Functions whose first argument is a string, and what it may be."""


def is_size(text: str) -> bool:
    """Whether a text is arithmetic over sizes and nothing else, with powers that take no time to compute."""
    if len(text) > _LONGEST:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return _plain(tree.body) and all(map(_is_small, filter(_is_power, ast.walk(tree))))


def _is_power(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=ast.Pow() | ast.LShift()):
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in _POWERS
        case _:
            return False


def _is_small(power: ast.AST) -> bool:
    """A power of something that holds none, with a small number for its exponent: 10**10**10 would never end."""
    match power:
        case ast.BinOp(left=base, right=exponent) | ast.Call(args=[base, exponent]):
            return _is_little(exponent) and not any(map(_is_power, ast.walk(base)))
        case _:
            return False


def _is_little(exponent: ast.expr) -> bool:
    match exponent:
        case (
            ast.Constant(value=int() | float() as x)
            | ast.Call(func=ast.Name(id="Integer"), args=[ast.Constant(value=int() as x)])
        ):
            return x <= _LARGEST_POWER
        case _:
            return False


def _plain(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=bool() | int() | float()):
            return True
        case ast.Name(id=name):
            return name in _NAMES or _SYMBOL.fullmatch(name) is not None
        case ast.UnaryOp(operand=x):
            return _plain(x)
        case ast.BinOp(left=a, right=b):
            return _plain(a) and _plain(b)
        case ast.Compare(left=a, comparators=others):
            return _plain(a) and all(map(_plain, others))
        case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS:
            return _arguments(name, node.args) and all(_assumption(k) for k in node.keywords)
        case _:
            return False


def _arguments(function: str, args: list[ast.expr]) -> bool:
    match args:
        case [ast.Constant(value=str() as text), *rest] if function in _QUOTED:
            return _QUOTED[function].fullmatch(text) is not None and all(map(_plain, rest))
        case _:
            return all(map(_plain, args))


def _assumption(keyword: ast.keyword) -> bool:
    """`positive=True`, `precision=53`; not `**…`."""
    value = keyword.value
    return (
        keyword.arg is not None and isinstance(value, ast.Constant) and isinstance(value.value, (bool, int))
    )
