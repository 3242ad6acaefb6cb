"""What may stand in the JSON of a `.pt2` program: torch turns many of its strings into code when it loads them.

Names become variables and attributes of generated Python, targets are looked up and called, sizes are evaluated, tree
specifications import modules. So the rule is the other way round: a string is a plain word, unless it stands under a
key whose strings are known to be something else, which is checked, or text that is only shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from fusebound.api.sizes import is_size
from fusebound.errors import FormatError

_IDENTIFIER = re.compile(r"\w*")
_PATH = re.compile(r"[\w.]*")
_NAMES = frozenset(("name", "as_name", "as_names", "forward_arg_names"))
_TARGETS = frozenset(("target", "as_operator"))
_TREES = frozenset(("in_spec", "out_spec"))
_NUMBERS, _NO_NUMBER = frozenset(("as_float", "as_floats")), re.compile(r"-?Infinity|NaN")
"""What JSON has no numbers for, and where it may stand."""
_SHOWN = frozenset(("as_string", "as_strings", "stack_trace", "nn_module_stack", "torch_version"))
_KEPT = ("stack_trace", "nn_module_stack")
_FLOW = frozenset(
    ["cond", "while_loop", "scan", "map_impl", "wrap_with_set_grad_enabled", "wrap_with_autocast"]
)
"""Higher-order operators, which run nothing but subgraphs of the program."""
_CONTAINERS = frozenset((None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"))


def without_extras(program: dict[str, Any]) -> dict[str, Any]:
    """The program without what torch would read and fusebound has no use for: guards as Python code, metadata other
    than the user's lines and modules."""
    cleaned: dict[str, Any] = _pruned(program)
    return cleaned | {"guards_code": []}


def _pruned(x: Any) -> Any:
    match x:
        case dict():
            made = {k: _pruned(v) for k, v in x.items()}
            if isinstance(kept := made.get("metadata"), dict):
                made["metadata"] = {k: v for k, v in kept.items() if k in _KEPT}
            return made
        case list():
            return [_pruned(v) for v in x]
        case _:
            return x


def objection(program: Any) -> str:
    """What is wrong with a program, or nothing: the first string that is not what its key allows."""
    for key, text in _strings(program):
        if key in _TARGETS and "." in text and not _may_run(text):
            return f"an unknown target `{text:.80}`"
        if key == "expr_str" and not is_size(text):
            return f"a size that is not arithmetic: `{text:.80}`"
        if key in _TREES and not _is_tree(text):
            return f"a structure of arguments that is not plain: `{text:.80}`"
        if key in _NAMES and not _IDENTIFIER.fullmatch(text):
            return f"a name that is none: `{text:.80}`"
        if key in _NUMBERS and _NO_NUMBER.fullmatch(text):
            continue
        if key not in (*_TREES, *_SHOWN, "expr_str") and not _PATH.fullmatch(text):
            return f"text where a word is due: `{text:.80}`"
    return ""


def _strings(x: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every string of a JSON value with the key that it stands under; keys themselves stand under none."""
    match x:
        case str():
            yield key, x
        case dict():
            for k, v in x.items():
                yield "", k
                yield from _strings(v, k)
        case list():
            for v in x:
                yield from _strings(v, key)
        case _:
            return


def _may_run(target: str) -> bool:
    """Whether a target is an operator that replays may run, too."""
    from fusebound.capture.replay import resolve

    if target.startswith("torch.ops.higher_order."):
        return target.rpartition(".")[2] in _FLOW
    head, _, rest = target.partition(".")
    name = rest.removeprefix("ops.") if head == "torch" else f"{head.removeprefix('_')}.{rest}"
    try:
        resolve(f"torch.{name}" if name.startswith("sym_") else name)
    except FormatError:
        return False
    return True


def _is_tree(text: str) -> bool:
    """A tree specification of plain containers; others' contexts import modules by name."""
    if not text:
        return True
    try:
        _, tree = json.loads(text)
        return _is_plain(tree)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def _is_plain(tree: dict[str, Any]) -> bool:
    context = json.loads(tree["context"]) if isinstance(tree["context"], str) else tree["context"]
    keys = context if isinstance(context, list) else []
    return (
        tree["type"] in _CONTAINERS
        and (context is None or isinstance(context, list))
        and all(isinstance(k, int) or (isinstance(k, str) and _IDENTIFIER.fullmatch(k)) for k in keys)
        and all(map(_is_plain, tree["children_spec"]))
    )
