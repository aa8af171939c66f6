"""`make bench`: every benchmark, one table on the terminal and the same figures in build/bench.json.

A part that fails is named, and the others are measured all the same. The last lines say what was compared with the
committed figures, and name what got dearer (slower.py); then the status is 1.
`python -m tests.benchmarks.run broker` runs one part alone; `--help` names the parts. `--short` is a quick look
(short.py), `--keep` commits to a run's figures.
"""

import argparse
import json
import logging
import os
import platform
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import structlog

from tests.benchmarks import (
    bench_bombs,
    bench_broker,
    bench_cluster,
    bench_compact,
    bench_controller,
    bench_counts,
    bench_leases,
    bench_page,
    bench_pauses,
    bench_size,
    bench_spark,
    bench_topics,
    ceilings,
    short,
    slower,
)
from tests.benchmarks.harness import HEADING, Row

PARTS: Mapping[str, Callable[..., list[Row]]] = {
    "ceilings": ceilings.measure,
    "broker": bench_broker.measure,
    "counts": bench_counts.measure,
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; returns the exit status. Standard output is the table alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; all without")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the figures are written")
    parser.add_argument("--short", action="store_true", help="as little work as shows that every part runs")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="make the figures of broker and counts those of tests/benchmarks/figures.json",
    )
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if options.short and options.keep:
        parser.error("the figures of a short run are not kept")
    if options.short:
        short.shorten()
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, Linux {platform.release()}\n{HEADING}")
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    figures: dict[str, list[dict[str, object]]] = {}
    failed = []
    for part in options.parts or PARTS:
        try:
            figures[part] = _measured(part, short.ARGUMENTS.get(part, {}) if options.short else {})
        except Exception:
            # The others took as long to measure; what failed is told again at the end.
            traceback.print_exc()
            failed.append(part)
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    text, is_worse = slower.report(figures, slower.committed(), is_busy=is_busy)
    print(text)
    if failed:
        print(f"not measured, because they failed: {', '.join(failed)}")
        return 1
    if options.keep:
        print(f"kept: {', '.join(slower.keep(figures, is_busy=is_busy)) or 'nothing'}")
        return 0
    return 1 if is_worse else 0


def _measured(part: str, given: Mapping[str, int]) -> list[dict[str, object]]:
    """Measure one part and print its rows."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        rows = PARTS[part](Path(directory), **given)
    for row in rows:
        print(row.text(), flush=True)
    return [asdict(row) for row in rows]


def end_when_told() -> None:
    """Make SIGTERM end this process like an interrupt: clusters of the running part are stopped, its files removed."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


if __name__ == "__main__":
    end_when_told()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    sys.exit(main())
