"""Runs the export of this checkout in a process of its own, which dies by SIGKILL at a named place.

python -m tests.support.dying_export PLACE DIR ARGUMENTS…
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SPARK = (
    "--master local[2] --conf spark.ui.enabled=false --conf spark.driver.bindAddress=127.0.0.1"
    " --conf spark.driver.host=127.0.0.1"
)


def start(place: str, target: Path, arguments: Sequence[str], jars: str = "") -> "subprocess.Popen[str]":
    """Start one export into `target`, with these jars on Spark's class path."""
    submit = f"{SPARK}{f' --jars {jars}' if jars else ''} pyspark-shell"
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": submit,
    }
    command = [sys.executable, "-m", "tests.support.dying_export", place, str(target), "--destination", str(target)]
    return subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def then_die(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **named: Any) -> None:
        function(*arguments, **named)
        die()

    return wrapped


def die_at_the(call: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function be called so often, then die."""
    calls = 0

    def wrapped(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            die()
        return function(*arguments, **named)

    return wrapped


def wait_for_the_other(target: Path, commit: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*arguments: Any) -> None:
        (target.parent / f"ready-{os.getpid()}").touch()
        while len(list(target.parent.glob("ready-*"))) < 2:
            time.sleep(0.01)
        commit(*arguments)

    return wrapped


def die_when_staged(target: Path) -> None:
    while not any(target.glob("_staging/*/data/**/*.parquet")):
        time.sleep(0.001)
    die()


def prepare(place: str, target: Path) -> None:
    """Have this process die at a place."""
    from logyard.spark_jobs import session
    from logyard.spark_jobs.export.manifest_store import ManifestStore
    from logyard.spark_jobs.tables.delta import DeltaTable
    from logyard.spark_jobs.tables.iceberg import IcebergTable

    patches: dict[str, tuple[Any, str, Callable[..., Any]]] = {
        "before staging": (session, "run_each", die),
        "before the manifest": (ManifestStore, "commit", die),
        "before the third manifest": (ManifestStore, "commit", die_at_the(3, ManifestStore.commit)),
        "after the manifest's link": (os, "link", then_die(os.link)),
        "mid moves": (os, "replace", then_die(os.replace)),
        "after Delta's append": (DeltaTable, "append_files", then_die(DeltaTable.append_files)),
        "after Iceberg's append": (IcebergTable, "append_files", then_die(IcebergTable.append_files)),
        "race": (ManifestStore, "commit", wait_for_the_other(target, ManifestStore.commit)),
    }
    if place == "mid write":
        threading.Thread(target=die_when_staged, args=(target,), daemon=True).start()
    elif place != "nowhere":
        setattr(*patches[place])


def main() -> int:
    from logyard.spark_jobs.export import job

    prepare(sys.argv[1], Path(sys.argv[2]))
    return job.main(sys.argv[3:])


if __name__ == "__main__":
    sys.exit(main())
