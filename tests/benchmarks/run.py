"""`make bench`: every benchmark, one table on the terminal and the same figures in build/bench.json.

`python -m tests.benchmarks.run broker` runs one part alone; `--help` names the parts.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from tests.benchmarks import (
    bench_bombs,
    bench_broker,
    bench_cluster,
    bench_compact,
    bench_controller,
    bench_leases,
    bench_page,
    bench_pauses,
    bench_size,
    bench_spark,
    bench_topics,
    ceilings,
)
from tests.benchmarks.harness import HEADING, Row

PARTS: Mapping[str, Callable[[Path], list[Row]]] = {
    "ceilings": ceilings.measure,
    "broker": bench_broker.measure,
    "size": bench_size.measure,
    "pauses": bench_pauses.measure,
    "bombs": bench_bombs.measure,
    "leases": bench_leases.measure,
    "cluster": bench_cluster.measure,
    "controller": bench_controller.measure,
    "compact": bench_compact.measure,
    "spark": bench_spark.measure,
    "topics": bench_topics.measure,
    "page": bench_page.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; all without")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the figures are written")
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, Linux {platform.release()}\n{HEADING}")
    figures: dict[str, list[dict[str, object]]] = {}
    for part in options.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            rows = PARTS[part](Path(directory))
        for row in rows:
            print(row.text(), flush=True)
        figures[part] = [asdict(row) for row in rows]
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
