"""Libraries that a plain broker never uses are imported at their first use, or not at all.

Each costs memory for as long as a broker runs, and time at each start: `cryptography` alone is 11 MB.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def imported_when_used(*names: str) -> Iterator[None]:
    """Within this context, importing a module of these names gives a stand-in that imports it at its first use.

    Import modules, not what is in them: `from cryptography import x509`, and `x509.Certificate` where it is used; the
    module above is imported now, unless it is named too. A module that is imported already is itself. Raises
    ModuleNotFoundError for a package that is not installed, as an import does.
    """
    for package in {name.partition(".")[0] for name in names}:
        if package not in sys.modules and importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    stand_ins = {name: _StandIn(name) for name in names if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]


@contextmanager
def as_if_missing(*packages: str) -> Iterator[None]:
    """Within this context these packages cannot be imported: for libraries that use them only where they are installed.

    A package that is imported already stays as it is.
    """
    hidden = [package for package in packages if package not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for package in hidden:
            del sys.modules[package]


class _StandIn(ModuleType):
    """Imports its module when something of it is asked for; threads may do so at once."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # The import system asks for these, before anybody uses the module.
            raise AttributeError(name)
        below = sys.modules.get(f"{self.__name__}.{name}")
        if isinstance(below, _StandIn):
            return below
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value
