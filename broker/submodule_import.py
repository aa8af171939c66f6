"""Imports one module of a large package without running the package's `__init__`.

`import kafka.protocol.schemas` runs `kafka/__init__.py` first, which loads the clients and their network code: 0.15 s
and some megabytes at each start of a broker, for one function.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


@contextmanager
def without_package_init(package: str) -> Iterator[None]:
    """Within this context, modules below `package` are imported without running its `__init__`.

    Afterwards the package counts as not imported: a later import of it runs `__init__` and gets all of it. Nothing
    happens if the package is imported already, or is not installed.
    """
    spec = None if package in sys.modules else importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        yield
        return
    stand_in = ModuleType(package)
    stand_in.__path__ = list(spec.submodule_search_locations)
    sys.modules[package] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(package) is stand_in:
            del sys.modules[package]
            sys.meta_path.insert(0, _PackageFinder(package))


class _PackageFinder(MetaPathFinder):
    """Finds one package, once, and makes the modules that were loaded below it its attributes, as an import does."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.startswith(f"{self._package}.") and self._package not in sys.modules:
            # The package is needed whole now: some of its modules only work after its `__init__`.
            importlib.import_module(self._package)
            return ModuleSpec(name, _Loaded(sys.modules[name])) if name in sys.modules else None
        if name != self._package:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        run, below = spec.loader.exec_module, f"{name}."

        def bind_and_run(module: ModuleType) -> None:
            for known, loaded in list(sys.modules.items()):
                if known.startswith(below) and "." not in known[len(below) :]:
                    setattr(module, known[len(below) :], loaded)
            run(module)

        spec.loader.exec_module = bind_and_run  # type: ignore[method-assign]
        return spec


class _Loaded(Loader):
    """Returns a module that the package's `__init__` has loaded, as it is."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
