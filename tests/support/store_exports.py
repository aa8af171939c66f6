"""Exports into an object store, each in a process of its own, which can be killed.

exports = StoreExports(flights, url, settings)
process = exports.start("--mode", "upsert")
process.join()
exports.offsets()

Processes are forked from one that has imported everything and has no threads, so each begins within milliseconds.
"""

import json
import multiprocessing
import sys
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from logyard.broker.errors import LogyardError
from logyard.spark_jobs.manifest import ManifestStore
from tests.support.export_runs import Flights

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])
RUN_S = 120


class StoreExports:
    """One log's exports to one place."""

    def __init__(self, flights: Flights, url: str, settings: Mapping[str, str]) -> None:
        self.flights, self.url, self.settings = flights, url, dict(settings)

    def start(self, *words: str) -> BaseProcess:
        """Begin an export; exit status 0, or 1 if it ends with one of our errors (in `flights.root/said`)."""
        given = ["--destination", self.url, "--store", str(self.settings_file()), *words]
        process = _FORKS.Process(target=_export, args=(self.flights.root, given))
        process.start()
        return process

    def run(self, *words: str) -> None:
        """Export, to the end."""
        process = self.start(*words)
        process.join(RUN_S)
        assert process.exitcode == 0, (self.flights.root / "said").read_text()

    def offsets(self) -> list[int]:
        """The offsets of all rows that versions name, asked without a proxy between."""
        store = ManifestStore(self.url, self.settings)
        tables = (pq.ParquetFile(store.open(str(file["path"]))).read() for file in store.live_files())
        return sorted(offset for table in tables for offset in table.column("offset").to_pylist())

    def through(self, endpoint: str) -> "StoreExports":
        """The same exports, by processes that speak to the store through a proxy."""
        return StoreExports(self.flights, self.url, {**self.settings, "endpoint": endpoint})

    def settings_file(self) -> Path:
        path = self.flights.root / "store.json"
        path.write_text(json.dumps({**self.settings, "timeout": "20s"}))
        path.chmod(0o600)
        return path


def _export(root: Path, words: list[str]) -> None:
    flights = Flights(root)
    said: Any = ""
    try:
        said = flights.run(*words)
    except LogyardError as error:
        said = f"{type(error).__name__}: {error}"
        (root / "said").write_text(said)
        sys.exit(1)
    (root / "said").write_text(json.dumps(said))
