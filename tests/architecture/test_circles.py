"""No module imports itself in a circle, not by way of others, not inside a function, not for types alone."""

from collections.abc import Iterable, Mapping

from tests.support import floors


def imported(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Module → the modules of ours that it imports, wherever in its file; `modules` is name → source."""
    names = {f"logyard.{name}": name for name in modules}
    return {
        module: {names[found] for found in floors.imports(source, module) if found in names} - {module}
        for module, source in modules.items()
    }


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Every set of modules that reach each other (Tarjan's strongly connected components of more than one), sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            circle = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for module in graph:
        if module not in index:
            visit(module)
    return sorted(found)


def test_no_module_imports_itself_by_way_of_others() -> None:
    sources = {
        floors.module_name(path, floors.ROOT): path.read_text()
        for path in floors.python_files(floors.ROOT)
        if not path.with_suffix(
            ""
        ).is_dir()  # a file for spark-submit beside the package of its name: nobody imports it
    }
    assert circles(imported(sources)) == []


def test_planted_circles_are_found() -> None:
    planted = {
        "broker.log.a": "from logyard.broker.log import b\n",
        "broker.log.b": "def f():\n    from logyard.broker.log.c import thing\n",
        "broker.log.c": "if TYPE_CHECKING:\n    import logyard.broker.log.a\n",
        "broker.log.d": "from logyard.broker.log.a import other\n",
    }
    assert circles(imported(planted)) == [["broker.log.a", "broker.log.b", "broker.log.c"]]
