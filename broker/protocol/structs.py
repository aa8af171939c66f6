"""The classes of decoded messages: one for each struct of a message, for all versions."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any


class Struct:
    """A decoded message or a struct in it; the fields of all versions are attributes.

    Fields that the decoded version does not have are the schema's defaults.
    """

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable, as lists are

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.items())})"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no field {name!r}, only {', '.join(self.__slots__)}")

    def items(self) -> Iterator[tuple[str, Any]]:
        """Return names and values of the fields, in the order of the schema."""
        return ((name, getattr(self, name)) for name in self.__slots__)

    def as_dict(self) -> dict[str, Any]:
        """Return the tree of dicts and lists that the encoder takes."""
        return {name: _plain(value) for name, value in self.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return value.as_dict()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


@cache
def struct_class(name: str, fields: tuple[str, ...]) -> Callable[..., Struct]:
    """Return the class of a struct; its arguments are the values of all fields in order."""
    arguments = ", ".join(f"v_{f}" for f in fields)
    lines = [f"def __init__(self, {arguments}):", *(f"    self.{f} = v_{f}" for f in fields), "    pass"]
    namespace: dict[str, Any] = {}
    exec("\n".join(lines), namespace)
    made: Callable[..., Struct] = type(name, (Struct,), {"__slots__": fields, "__init__": namespace["__init__"]})
    return made
