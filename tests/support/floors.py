"""The floors of ARCHITECTURE.md as data, and how a module's imports are read off its source."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TOP_FOLDERS = ("broker", "operators", "plugins", "dags", "spark_jobs")
OWN_FOLDERS = ("logyard/cli", "logyard/local", "logyard/admin", "logyard/login")

# From the roof to the ground; modules on one line are neighbours and do not see each other.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("cli",),
    ("plugins", "dags"),
    ("operators",),
    ("local",),
    ("spark_jobs",),
    ("admin",),
    ("login",),
    ("broker.__main__",),
    ("broker.broker",),
    ("broker.components",),
    ("broker.coordinators", "broker.http_gate"),
    ("broker.environment",),
    ("broker.settings_changes",),
    ("broker.cleaner",),
    ("broker.server", "broker.http"),
    ("broker.security",),
    ("broker.zk", "broker.client"),
    ("broker.controller", "broker.groups", "broker.transactions", "broker.leases"),
    ("broker.replication",),
    ("broker.metadata",),
    ("broker.log",),
    ("broker.compiled",),
    ("broker.compaction",),
    ("broker.security.sasl",),
    ("broker.protocol", "broker.records", "broker.znodes", "broker.tls"),
    ("broker.config", "broker.clock"),
    ("broker.model",),
    (
        "broker.errors",
        "broker.event_loop",
        "broker.extras",
        "broker.late_import",
        "broker.log_format",
        "broker.log_levels",
        "broker.log_stream",
        "broker.portions",
        "broker.submodule_import",
        "broker.tasks",
    ),
)

# What the upper floors may take from the broker (ARCHITECTURE.md, "The floors").
NARROW = {
    "login": ("broker.errors", "login"),
    "admin": (
        "login",
        "broker.znodes",
        "broker.model",
        "broker.errors",
        "broker.controller.topics.placement",
        "broker.zk.session",
        "broker.zk.access",
        "broker.zk.kazoo_access",
        "broker.security.zookeeper_access",
    ),
    "spark_jobs": (
        "login",
        "broker.records",
        "broker.znodes",
        "broker.model",
        "broker.errors",
        "broker.extras",
        "broker.compaction",
        "broker.compiled",
        "broker.log.layout",
        "broker.log.segment.index",
        "broker.log.leader_epochs",
        "broker.log.producers",
        "broker.log.checkpoints",
        "spark_jobs",
    ),
    "operators": ("admin", "login", "broker.model", "broker.log_format", "operators", "spark_jobs.driver_jvm"),
    "local": (
        "local",
        "admin",
        "login",
        "broker.errors",
        "broker.security.zookeeper_access",
        "broker.zk.access",
        "broker.zk.kazoo_access",
    ),
}


def python_files(root: Path) -> list[Path]:
    """Every Python file of the product, by its real place (links are not followed)."""
    folders = [root / name for name in (*TOP_FOLDERS, *OWN_FOLDERS)]
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def module_name(path: Path, root: Path) -> str:
    """`broker/records/batch.py` → `broker.records.batch`; `logyard/admin/ports.py` → `admin.ports`."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[0] == "logyard":
        parts = parts[1:]
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """What lies in a statement but expressions, in which there are neither blocks nor imports."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        yield from getattr(node, name, ())


def all_statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The tree and every statement below it: `ast.walk` would look at each name and number too."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        left.extend(statements(node))


@cache
def imports(source: str, module: str) -> tuple[str, ...]:
    """The absolute name of everything imported anywhere in the file, functions included.

    Kept: several tests ask for the same files, and parsing them all takes seconds.
    """
    return tuple(_imports(source, module))


def _imports(source: str, module: str) -> Iterator[str]:
    package = module.split(".")[:-1]
    for node in all_statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                kept = package[: len(package) - (node.level - 1)]
                base = ".".join(["logyard", *kept, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def floor_of(name: str) -> int | None:
    """The index of the floor a module stands on (0 is the roof), None where the name is no module of ours."""
    best: tuple[int, int] | None = None
    for index, floor in enumerate(FLOORS):
        for prefix in floor:
            hit = name == prefix or name.startswith(prefix + ".")
            if hit and (best is None or len(prefix) > best[1]):
                best = (index, len(prefix))
    return best[0] if best else None


def owner(name: str) -> str:
    """The package whose neighbours may not be seen: `broker.log.index` → `broker.log`, `admin.client` → `admin`."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "broker" else parts[0]


def _starts(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == p or name.startswith(p + ".") for p in prefixes)


def violations(source: str, module: str) -> list[str]:
    """Every import of this file that the floors forbid, as `module imports name: why`."""
    found: list[str] = []
    mine = floor_of(module)
    if mine is None and module in ("broker",):  # the package's own empty __init__
        return []
    if mine is None:
        return [f"{module}: stands on no floor"]
    for name in dict.fromkeys(imports(source, module)):
        root = name.split(".")[0]
        if root in TOP_FOLDERS:
            found.append(f"{module} imports {name}: write logyard.{name}")
        if root != "logyard" or name == "logyard":
            continue
        target = name.removeprefix("logyard.")
        theirs = floor_of(target)
        if theirs is None:
            continue
        if theirs < mine or (theirs == mine and owner(target) != owner(module)):
            found.append(f"{module} imports {name}: imports go down only")
        narrow = NARROW.get(owner(module))
        if narrow and owner(target) != owner(module) and not _starts(target, narrow):
            # `from logyard.broker.controller import assignment` names the package first, then the module.
            wider = any(p.startswith(target + ".") for p in narrow)
            if not wider:
                found.append(f"{module} imports {name}: {owner(module)} may take {', '.join(narrow)}")
    return found
