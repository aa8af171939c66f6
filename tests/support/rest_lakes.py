"""A log of a day, its exports into one table of Iceberg's REST catalog, and the table's maintenance."""

import argparse
import json
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from logyard.spark_jobs.maintenance import job
from logyard.spark_jobs.tables.catalog import CatalogFailed
from tests.support.catalog_servers import CREDENTIAL
from tests.support.export_runs import Flights, pairs
from tests.support.here_workers import HereWorkers

HOUR_MS, DAY = 3_600_000, 24
SECRET = CREDENTIAL.partition(":")[2]


class RestLake:
    """A log of a day, and its exports into one table of the catalog."""

    def __init__(self, root: Path, uri: str, table: str, *words: str) -> None:
        """:param words: further options of the exports; without any they are partitioned by date."""
        self.flights, self._uri, self._table = Flights(root), uri, f"lake.{table}"
        self._root, self._words = root, words or ("--partition-by", "date")
        self.flights.grow(pairs(DAY), HOUR_MS)

    def run(self, uri: str = "") -> None:
        """Export, by a catalog at this address."""
        self.flights.run("--format", "iceberg", *self._where(uri), *self._words)

    def maintain(self, uri: str = "") -> dict[str, Any]:
        """Merge small files and expire all earlier states, by a catalog at this address."""
        parser = argparse.ArgumentParser()
        job.add_arguments(parser)
        given = ["--destination", str(self.flights.target), *self._where(uri)]
        status, summary = job.maintain(
            parser.parse_args([*given, "--merge-files", "2", "--older-than-hours", "0"]), HereWorkers()
        )
        assert status == 0
        return summary

    def _where(self, uri: str) -> list[str]:
        settings = {"type": "rest", "uri": uri or self._uri, "credential": CREDENTIAL}
        file = self._root / "catalog.json"
        file.write_text(json.dumps(settings))
        return ["--catalog", str(file), "--table", self._table]

    def offsets(self, where: str = "offset >= 0") -> list[int]:
        """The offsets that a reader of the catalog sees."""
        return sorted(self.table().scan(where).to_arrow().column("offset").to_pylist())

    def metadata(self) -> str:
        """Where the table's present metadata are."""
        return str(self.table().metadata_location).removeprefix("file:")

    def table(self) -> Table:
        settings = {"credential": CREDENTIAL, "oauth2-server-uri": f"{self._uri}/v1/oauth/tokens"}
        return RestCatalog("reader", uri=self._uri, **settings).load_table(self._table)

    def grown(self) -> list[list[Any]]:
        """Export twice; returns the rows that a reader has to see."""
        self.run()
        self.flights.grow(pairs(DAY), HOUR_MS)
        self.run()
        return [[i * HOUR_MS, i, f"k{i % DAY % 5}", f"v{i % DAY}"] for i in range(2 * DAY)]

    def to_the_end(self, uri: str, *, maintained: bool = False) -> None:
        """Export (or maintain) again and again until a run ends well. What failed runs say has no secret in it."""
        said = []
        for _ in range(5):
            try:
                if maintained:
                    self.maintain(uri)
                else:
                    self.run(uri)
            except CatalogFailed as problem:
                said.append(str(problem))
            else:
                break
        assert len(said) < 5, said
        assert SECRET not in "".join(said)
