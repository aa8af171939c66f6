"""Run by another environment's Python: imports every module of ours, parses every DAG, lists plugin and provider.

Prints one line of JSON as its last one: {"modules", "failed", "dags", "errors", "plugin", "provider"}. It uses nothing
that is newer than Python 3.10 and Airflow 3.0.
"""

import importlib
import json
import os
import sys
from pathlib import Path

PARTS = ("admin", "login", "cli", "operators", "plugins", "dags")


def modules(home: Path) -> list[str]:
    found = []
    for part in PARTS:
        for path in sorted((home / part).rglob("*.py")):
            # `dump-log` reads logs with what a broker has.
            if path.stem == "__main__" or "dump_log" in path.parts:
                continue
            # The decoding process imports them where the extra `schemas` is installed, and says so where it is not.
            if path.parent.name == "schemas" and path.stem in ("avro", "protobuf"):
                continue
            names = ("logyard", *path.relative_to(home).with_suffix("").parts)
            found.append(".".join(names[:-1] if names[-1] == "__init__" else names))
    return found


def import_all() -> "tuple[int, list[str]]":
    import logyard

    names, failed = modules(Path(logyard.__file__).parent), []
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as problem:
            failed.append(f"{name}: {type(problem).__name__}: {problem}")
    return len(names), failed


def dags(folder: Path) -> "tuple[list[str], dict[str, str]]":
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:  # before 3.2
        from airflow.models.dagbag import DagBag  # type: ignore[no-redef]
    bag = DagBag(str(folder))
    return sorted(bag.dags), {str(path): str(error) for path, error in bag.import_errors.items()}


def registered() -> "tuple[list[str], dict[str, object]]":
    from airflow import plugins_manager
    from airflow.providers_manager import ProvidersManager

    if hasattr(plugins_manager, "get_plugin_info"):
        plugins = [one["name"] for one in plugins_manager.get_plugin_info(["name"])]
    else:
        plugins_manager.ensure_plugins_loaded()
        plugins = [one.name for one in plugins_manager.plugins]  # type: ignore[attr-defined]
    manager = ProvidersManager()  # type: ignore[no-untyped-call]
    provider = manager.providers["logyard"]
    hook = manager.hooks["logyard"]
    return plugins, {
        "version": provider.version,
        "name": provider.data["name"],
        "description": provider.data["description"],
        "hook": getattr(hook, "hook_name", ""),
    }


def main() -> None:
    folder = Path(os.environ["AIRFLOW_HOME"]) / "dags"
    folder.mkdir(exist_ok=True)
    from logyard.cli.main import main as logyard

    assert logyard(["airflow", "install-dags", str(folder)]) == 0
    count, failed = import_all()
    parsed, errors = dags(folder)
    plugins, provider = registered()
    told = {"modules": count, "failed": failed, "dags": parsed, "errors": errors}
    sys.stdout.flush()
    print("\n" + json.dumps({**told, "plugins": plugins, "provider": provider}))


main()
