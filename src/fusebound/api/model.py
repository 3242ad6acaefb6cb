"""MODEL as the user writes it: a scenario, `file.py:name`, `package.module:name`, or a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusebound import scenarios
from fusebound.errors import UsageError
from fusebound.files import require_readable
from fusebound.words import count

if TYPE_CHECKING:
    from fusebound.ir.graph import Graph
    from fusebound.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Model:
    """A program with example inputs. `fn` is a callable or an nn.Module.

    `graph` is set where MODEL was a graph in a file, which is not captured anew; `plan` where it was a plan.
    """

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    graph: Graph | None = None
    plan: Plan | None = None


FILES = (".pt2", ".json")
_FORMS = "MODEL is a scenario, file.py:name, package.module:name, a .pt2 archive or a .json file"


def resolve(
    spec: str, *, shapes: tuple[str, ...] = (), dtypes: tuple[str, ...] = (), trust: bool = False
) -> Model:
    """The model that `spec` names.

    `shapes` and `dtypes` describe example inputs (`8192,2048`, `float32`) and replace the model's own.
    Raises UsageError (E101 unknown name, E102 no such file, E103 no example inputs, E105 shapes that cannot be
    used, E106 `.onnx`) and FormatError (E110) for a damaged file; errors of the user's own module become
    UsageError (E104).
    """
    require(spec, shapes=shapes, dtypes=dtypes)
    path = Path(spec)
    if path.suffix in FILES:
        return from_file(path, trust=trust)
    if ":" in spec:
        from fusebound.api.python_model import from_python

        return _fitting(from_python(spec, shapes=shapes, dtypes=dtypes), shapes)
    fn, args = scenarios.build(spec)
    if shapes:
        from fusebound.api.inputs import from_shapes

        args = from_shapes(shapes, dtypes)
    return _fitting(Model(spec, fn, args), shapes)


def require(spec: str, *, shapes: tuple[str, ...] = (), dtypes: tuple[str, ...] = ()) -> None:
    """Raise what `resolve` raises for a `spec` of which nothing can be read: no such name, file or module, a directory,
    another kind of file. That takes no torch, which takes seconds to import, and runs nothing of the user's."""
    if dtypes and not shapes:
        hint = "give `--shape` for every argument too, or set the type in `example_inputs()`"
        raise UsageError("types are those of the inputs of --shape", where="--dtype", hint=hint, code="E105")
    path = Path(spec)
    if path.suffix in FILES:
        _require_file(path)
        if shapes:
            hint = "name the function or module that it was made from: `file.py:name`"
            raise UsageError(
                "the shapes of a saved program are fixed", where="--shape", hint=hint, code="E105"
            )
    elif not spec:
        raise UsageError("MODEL is empty", hint="`fusebound run --list` lists the built-in ones", code="E101")
    elif ":" in spec:
        from fusebound.api import python_model

        python_model.require(spec)
    elif spec not in scenarios.names() and (path.suffix or path.exists()):
        raise _unreadable(path)
    else:
        scenarios.find(spec)


def _fitting(model: Model, shapes: tuple[str, ...]) -> Model:
    """The model, unless it takes more or fewer arguments than it is given: UsageError (E103)."""
    from fusebound.capture.wrap import signature_of

    takes = signature_of(model.fn)
    if takes is None:
        return model
    try:
        takes.bind(*model.args, **model.kwargs)
    except TypeError as why:
        names = list(takes.parameters)
        given = count(len(shapes), "shape") if shapes else "example inputs"
        what = f"{given} for {count(len(names), 'argument')} ({', '.join(names)}): {why}"
        where, hint = "--shape" if shapes else model.name, "give one for every argument, in order"
        raise UsageError(what, where=where, hint=hint, code="E103") from None
    return model


def _require_file(path: Path) -> None:
    if path.suffix not in FILES or not path.is_file():
        raise _unreadable(path)
    require_readable(path, "the file")


def _unreadable(path: Path) -> UsageError:
    """What to say of a file whose form is not one that MODEL takes."""
    if not path.exists():
        return UsageError("there is no such file", where=str(path), code="E102")
    if path.is_dir():
        return UsageError("that is a directory", where=str(path), hint=_FORMS, code="E106")
    if path.suffix == ".py":
        hint = f"say which function or module: `{path}:name`"
        return UsageError(
            "a Python file needs the name of what to run", where=str(path), hint=hint, code="E103"
        )
    what = f"a `{path.suffix or path.name}` file cannot be read"
    return UsageError(what, where=str(path), hint=_FORMS, code="E106")


def from_file(path: Path, *, trust: bool = False) -> Model:
    """The program of a `.pt2` or `.json` file; errors as for `resolve`."""
    _require_file(path)
    if path.suffix == ".pt2":
        from fusebound.api.archive import from_archive

        return from_archive(path, trust=trust)
    from fusebound.api.records import from_json

    return from_json(path)
