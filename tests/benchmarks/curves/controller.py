"""Partitions of a cluster: a controller's take-over, against a real ZooKeeper, with peers that answer at once."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import bench_controller
from tests.benchmarks.curves.points import Curve


def measure(sizes: Sequence[int]) -> Curve:
    """Three replicas of each partition, 50 partitions a topic."""
    curve = Curve("partitions-of-the-cluster", "partitions")
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            found = bench_controller.take_over_of(Path(directory), size, bench_controller.PER_TOPIC)
        curve.add(
            size,
            {
                "until ready, s": found.wall_s,
                "CPU s": found.cpu_s,
                "memory MB": found.memory_mb,
                "sent MB": found.sent_mb,
            },
        )
    return curve
