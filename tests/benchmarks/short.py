"""`make bench SHORT=1`: every benchmark with as little work as shows that it runs, in minutes instead of an hour.

Its figures are of few rounds: they are compared as those of a whole run are, and never kept.
"""

from collections.abc import Mapping
from types import ModuleType

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
    controller_brokers,
)
from tests.benchmarks.harness import MEGABYTE

SMALLER: Mapping[ModuleType, Mapping[str, object]] = {
    ceilings: {"ROUNDS": 1, "TURNS": 20},
    bench_broker: {"ROUNDS": 3},
    bench_counts: {},  # some seconds
    bench_size: {"PARTITIONS": 1000, "STARTS": 1},
    bench_pauses: {"COLD_BYTES": 128 << 20, "SECONDS": 2},
    bench_bombs: {"SECONDS": 1},
    bench_leases: {"ROUNDS": 1, "SECONDS": 2},
    bench_cluster: {"SECONDS": 1, "LATENCY_SECONDS": 2},
    bench_controller: {"SIZES": (1000,)},
    controller_brokers: {"LED": 300, "SPREAD": 700},
    bench_compact: {"ROUNDS": 1},
    bench_spark: {"ROUNDS": 1},
    bench_topics: {"ALONE": 1, "SOME": 1, "MANY": 2, "AT_ONCE": (2,)},
    bench_page: {"TIMES": 2},
}
"""The constants of each benchmark's module, by name."""

ARGUMENTS: Mapping[str, Mapping[str, int]] = {
    "compact": {"megabytes": 8, "keys": 200_000},
    "spark": {"size": 16 * MEGABYTE},
    "page": {"topics": 1000},
}
"""What the parts are called with besides their directory."""


def shorten() -> None:
    """Make all benchmarks of this process short. Raises AttributeError for a constant that is no longer there."""
    for module, constants in SMALLER.items():
        for name, value in constants.items():
            getattr(module, name)
            setattr(module, name, value)
