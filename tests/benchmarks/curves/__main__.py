"""How cost grows with size: points at several sizes, the plots and docs/curves.md.

    python -m tests.benchmarks.curves [--small] [PART ...]      measure these parts, or all; then write the page
    python -m tests.benchmarks.curves --page                    write the page from what was measured
    python -m tests.benchmarks.curves --guest PART ...          measure them in a Linux of its own (guest.py)

What was measured of a part before is replaced. `--small`: the first two sizes of each only.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.benchmarks.curves import (
    brokers,
    connections,
    controller,
    groups,
    guest,
    jobs,
    page,
    partitions,
    points,
    topics,
)
from tests.benchmarks.curves.points import Curve

Measure = Callable[[Sequence[int]], Curve]

PARTS: Mapping[str, tuple[Measure, Sequence[int]]] = {
    "segments-of-an-export": (jobs.segments, (1_000, 10_000, 100_000)),
    "versions-of-a-manifest": (jobs.versions, (100, 1_000, 5_000)),
    "dags": (jobs.dags, (1, 8, 24)),
    "groups": (groups.measure, (100, 1_000, 10_000, 50_000)),
    "connections": (connections.measure, (100, 1_000, 10_000, 20_000)),
    "topics-of-the-page": (topics.measure, (1_000, 10_000, 50_000)),
    "brokers": (brokers.measure, (3, 10, 30)),
    "partitions-of-the-cluster": (controller.measure, (10_000, 100_000, 200_000, 1_000_000)),
    "partitions-of-a-broker": (partitions.measure, (1_000, 10_000, 50_000)),
}
SMALL = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; all without")
    parser.add_argument("--small", action="store_true", help="the first two sizes of each part")
    parser.add_argument("--sizes", type=int, nargs="+", help="these sizes instead, of the parts that are named")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--guest", action="store_true", help="in User-mode Linux, where a process may have more files")
    parser.add_argument("--into", type=Path, metavar="FILE", help="keep what is measured there, and write no page")
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if options.sizes and not options.parts:
        parser.error("--sizes: name the parts that they are for")
    if not options.page:
        for name in options.parts or PARTS:
            measure, sizes = PARTS[name]
            chosen = options.sizes or (sizes[:SMALL] if options.small else sizes)
            curve = guest.measure(name, chosen) if options.guest else measure(chosen)
            points.keep(curve, options.into or points.MEASURED)
    if options.into is None:
        page.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
