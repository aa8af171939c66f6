"""Functions that users name: a callable, or the dotted path of one."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from logyard.admin.settings import BadSettings


def called(
    name: str,
    function: Callable[..., Any] | str,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The function with its first arguments. Raises BadSettings with `name` if there is no such function."""
    found = imported(name, function) if isinstance(function, str) else function
    if not callable(found):
        raise BadSettings(f"{name}: a function is expected, not a {type(found).__name__}")
    refuse_text(f"{name}_args", args)
    return partial(found, *(args or ()), **(kwargs or {}))


def refuse_text(name: str, args: Any) -> None:
    """Raise BadSettings where arguments are a text, such as a template's: each of its letters would be one."""
    if isinstance(args, str):
        raise BadSettings(f"{name}: a list is expected, not the text {args!r}")


def imported(name: str, path: str) -> Any:
    """What a dotted path leads to. Raises BadSettings."""
    module, _, attribute = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as problem:
        raise BadSettings(f"{name} {path!r}: module.function is expected ({problem})") from None
