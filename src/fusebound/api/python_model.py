"""`file.py:name` and `package.module:name`: the user's code is run, by design, to find the program."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from fusebound.api.inputs import from_shapes
from fusebound.api.model import Model
from fusebound.errors import UsageError
from fusebound.files import require_readable

EXAMPLE = "example_inputs"


def from_python(spec: str, *, shapes: tuple[str, ...] = (), dtypes: tuple[str, ...] = ()) -> Model:
    """The callable or nn.Module that `spec` names, with example inputs.

    They come from `shapes`, else `name.example_inputs()`, else the module's `example_inputs()`: a tuple or
    list of arguments, a mapping of keyword arguments, or one tensor. A module class is made without arguments
    and put in evaluation mode. Raises UsageError.
    """
    place, name = _parts(spec)
    module = load(place)
    found = _attribute(module, name, spec)
    fn = _instantiate(found, spec)
    if shapes:
        return Model(spec, fn, from_shapes(shapes, dtypes))
    args, kwargs = _examples(found, fn, module, spec)
    return Model(spec, fn, args, kwargs)


def require(spec: str) -> None:
    """Raise what `from_python` raises for a file or module that is not there; runs nothing of the user's."""
    place, _ = _parts(spec)
    _find(place)


def _parts(spec: str) -> tuple[str, str]:
    place, _, name = spec.rpartition(":")
    if not place or not name:
        missing = "names no file or module" if not place else "names nothing to run"
        hint = "MODEL is file.py:name or package.module:name; the name is that of a function or module"
        raise UsageError(f"`{spec}` {missing}", hint=hint, code="E101")
    return place, name


def load(place: str) -> ModuleType:
    """Run the user's code: a file (`….py`) or a module by its name. Raises UsageError (E102, E104), and FormatError
    (E110) for a file that cannot be opened."""
    _find(place)
    return _load_file(Path(place)) if place.endswith(".py") else _load_module(place)


def place_of(spec: str) -> str:
    """The file, by its whole path, or the module of `file.py:name` and `package.module:name`; "" for other models."""
    place, colon, _ = spec.rpartition(":")
    return str(Path(place).resolve()) if colon and place.endswith(".py") else place


def _find(place: str) -> None:
    """Raise for a file, or for the outermost package of a module, that is not there; running tells of the rest."""
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise UsageError("there is no such file", where=place, code="E102")
        require_readable(Path(place), "the file")
        return
    sys.path.insert(0, str(Path.cwd()))
    outer = place.partition(".")[0]
    if outer and outer not in sys.modules and importlib.util.find_spec(outer) is None:
        raise UsageError(f"there is no module `{outer}`", where=place, code="E102")


def _load_file(path: Path) -> ModuleType:
    name = f"fusebound_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise user_error("the file raises on import", error) from error
    return module


def _load_module(place: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(error.name + ".")):
            raise UsageError(f"there is no module `{error.name}`", where=place, code="E102") from None
        raise user_error("the module raises on import", error) from error
    except Exception as error:
        raise user_error("the module raises on import", error) from error


def user_error(what: str, error: Exception) -> UsageError:
    """A diagnostic that points at the innermost line of the user's code that raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _ours(f.filename)]
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    return UsageError(f"{what}: {type(error).__name__}: {error}", where=where, code="E104")


def _ours(file: str) -> bool:
    return file.startswith(str(Path(__file__).parent)) or "importlib" in file


def _attribute(module: ModuleType, name: str, spec: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(
                f"`{part}` is not defined there", where=spec, hint=_named(found, part), code="E101"
            )
        found = getattr(found, part)
    if not callable(found):
        what = f"`{name}` is not callable: its type is {type(found).__name__}"
        raise UsageError(what, where=spec, hint=_named(module, name), code="E101")
    return found


def _named(owner: Any, name: str) -> str:
    """Callables that `name` may have meant, else those that are defined there."""
    public = [n for n, x in vars(owner).items() if callable(x) and not n.startswith("_")]
    if close := get_close_matches(name, [n for n in public if n != name], 1, cutoff=0.5):
        return f"did you mean `{close[0]}`?"
    own = [n for n in public if getattr(vars(owner)[n], "__module__", "") == getattr(owner, "__name__", None)]
    return f"defined there: {', '.join(own[:8])}" if own else ""


def _instantiate(found: Any, spec: str) -> Any:
    import torch

    if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
        return found
    try:
        return found().eval()
    except Exception as error:
        raise user_error(f"`{spec}` cannot be made without arguments", error) from error


def _examples(
    found: Any, fn: Any, module: ModuleType, spec: str
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    source = next((getattr(x, EXAMPLE) for x in (fn, found, module) if hasattr(x, EXAMPLE)), None)
    if source is None:
        hint = f"define `{EXAMPLE}()` beside it, or give `--shape` (and `--dtype`) for every argument"
        raise UsageError("there are no example inputs", where=spec, hint=hint, code="E103")
    try:
        given = source()
    except Exception as error:
        raise user_error(f"`{EXAMPLE}()` raises", error) from error
    if isinstance(given, Mapping):
        return (), given
    return (tuple(given) if isinstance(given, (tuple, list)) else (given,)), {}
