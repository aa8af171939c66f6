"""How each operator, sensor, trigger, event and notifier reaches a cluster, read from the code of operators/.

`ways()` has every class; a class has the ways of its bases in operators/ too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.floors import ROOT

FOLDER = ROOT / "operators"
KINDS = ("Operator", "Sensor", "Trigger", "Event", "Notifier", "Provider")
# What a class's code says, by the way that it means. Nothing else in operators/ connects (tests/architecture).
SIGNS = {
    "admin client": (".client()", ".get_conn("),
    "records": ("RecordsHook(",),
    "triggerer": ("ClusterWatch.of(", ".asettings()"),
    "ZooKeeper": (".ensemble()",),
    "job": ("job_arguments",),
}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """All modules of operators/, with their paths below the project."""
    for path in sorted(FOLDER.rglob("*.py")):
        yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def ways() -> dict[str, frozenset[str]]:
    """Class → ways, of all whose names say that DAGs use them."""
    classes = {node.name: node for _, tree in modules() for node in tree.body if isinstance(node, ast.ClassDef)}

    def of(name: str) -> frozenset[str]:
        node = classes.get(name)
        if node is None:
            return frozenset()
        code = ast.unparse(node)
        own = {way for way, signs in SIGNS.items() if any(sign in code for sign in signs)}
        return frozenset(own).union(*(of(ast.unparse(base)) for base in node.bases))

    return {name: of(name) for name in classes if name.endswith(KINDS)}
