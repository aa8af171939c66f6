"""A log, its export into a table of a catalog that can fail at any request (`faulty_catalog.py`), and that table."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import faulty_catalog
from tests.support.export_runs import Flights
from tests.support.faulty_catalog import FaultyCatalog


class Lake:
    """A log, its export, and the catalog that it goes to."""

    def __init__(self, root: Path) -> None:
        self.flights = Flights(root)
        self.file = root / "catalog.json"
        self.settings = {
            "py-catalog-impl": "tests.support.faulty_catalog.FaultyCatalog",
            "py-io-impl": "tests.support.faulty_catalog.FaultyFiles",
            "uri": f"sqlite:///{root}/catalog.db",
            "name": "yard",
        }
        self.file.write_text(json.dumps(self.settings))

    def run(self, *words: str) -> dict[str, Any]:
        return self.flights.run("--format", "iceberg", "--catalog", str(self.file), "--table", "lake.t", *words)

    def table(self) -> Any:
        faulty_catalog.quiet()
        settings = {key: value for key, value in self.settings.items() if key in ("uri",)}
        return FaultyCatalog("yard", **settings).load_table("lake.t")

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.table().scan().to_arrow().to_pylist(), key=lambda row: int(row["offset"]))

    def offsets(self) -> list[int]:
        return [row["offset"] for row in self.rows()]

    def kept_aside(self) -> Callable[[], None]:
        """Keep export and catalog as they are; what is returned puts them back."""
        root, aside = self.flights.root, self.flights.root / "before"
        for name in ("export", "catalog.db"):
            source, target = root / name, aside / name
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)

        def back() -> None:
            shutil.rmtree(root / "export")
            shutil.copytree(aside / "export", root / "export")
            shutil.copy(aside / "catalog.db", root / "catalog.db")

        return back
