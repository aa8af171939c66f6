"""Topics of a cluster on Airflow's page: its lists and its looks at the cluster, which costs nothing itself here."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import bench_page
from tests.benchmarks.curves.points import Curve

ROWS = {
    "List of topics, first viewer, a look included": "first list, CPU ms",
    "List of topics, later viewers": "later lists, CPU ms",
    "List of topics, sent": "list, kB sent",
    "A look where nothing changed": "look, nothing changed, CPU ms",
    "A look where one topic changed": "look, one topic changed, CPU ms",
    "Map of replicas": "map of replicas, CPU ms",
    "One topic": "one topic, CPU ms",
}


def measure(sizes: Sequence[int]) -> Curve:
    curve = Curve("topics-of-the-page", "topics")
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            found = {row.what: row.value for row in bench_page.measure(Path(directory), size, time.process_time)}
        curve.add(size, {name: found[what] for what, name in ROWS.items()})
    return curve
