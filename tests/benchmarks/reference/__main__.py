"""`make bench-reference`: our brokers and Apache Kafka's, the same work in one run; a table, and JSON.

    python -m tests.benchmarks.reference [--only WORDS] [--rounds N] [--brokers OURS KAFKA] [--json FILE]

Both clusters stand beside each other, three brokers each with a ZooKeeper of its own, and work in turn. Kafka's run
with the JVM options of its own start script, and both have worked for some minutes before the first row.
`--brokers 2 1`: two of ours beside one of Kafka's, as on one large host, for rows with one replica.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.reference import catalogue, measure, rows, tls
from tests.benchmarks.reference.settings import CONFIG, KAFKA_JVM
from tests.support import kafka
from tests.support.real_cluster import RealCluster

OUT = Path(__file__).resolve().parents[3] / "build" / "bench-reference.json"
FULL = 3
"""Replicas of rows that say nothing else."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="rows whose name has these words; repeatable")
    parser.add_argument("--rounds", type=int, help="counted runs a row (default: 5)")
    parser.add_argument("--brokers", type=int, nargs=2, default=(3, 3), metavar=("OURS", "KAFKA"), help="how many")
    parser.add_argument("--cold", action="store_true", help="without the work before the first row, for a quick look")
    parser.add_argument("--json", type=Path, default=OUT)
    options = parser.parse_args()
    chosen = [row for row in catalogue.rows() if not options.only or any(o in row.name for o in options.only)]
    if options.rounds:
        chosen = [
            replace(row, rounds=min(row.rounds, options.rounds) if row.rounds == 1 else options.rounds)
            for row in chosen
        ]
    outcomes: list[measure.Outcome] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="logyard-bench-") as home:
        mine, other = Path(home, "ours"), Path(home, "kafka")
        many, few = options.brokers
        replicas = min(FULL, many, few)
        ours = kafka.running(mine, "O" * many, CONFIG | tls.prepare(mine, many))
        theirs = kafka.running(other, "K" * few, CONFIG | tls.prepare(other, few), jvm=KAFKA_JVM)
        with ours as a, theirs as b:
            for cluster in (a, b):
                rows.create(cluster, "kept", 30, replicas)
                cluster.produce("kept", [(None, os.urandom(1000)) for _ in range(100_000)])
            for cluster in () if options.cold else (a, b):
                warm_up(cluster, replicas)
            for row in chosen:
                try:
                    found = measure.compare(row, a, b)
                except Exception:
                    traceback.print_exc()
                    failed.append(row.name)
                    continue
                outcomes += found
                print(*measure.table(found).splitlines()[2 : 2 + len(found)], sep="\n", flush=True)
                write(options.json, outcomes)
    if outcomes:
        print(f"\n{measure.table(outcomes)}")
    if failed:
        print(f"\nNot measured, the reasons are above: {'; '.join(failed)}")
    return 1 if failed else 0


def warm_up(cluster: RealCluster, replicas: int) -> None:
    """Work that is not measured: a JVM compiles its code for some minutes of load, on the cores that a row needs.

    Without it the first row of a run is about compilers: a median of half a millisecond was seen as 230.
    """
    for acks in ("1", "all"):
        for _ in range(4):
            each = rows.produce_and_consume(
                cluster, size=1024, replicas=replicas, acks=acks, codec="none", megabytes=200
            )
            measure.in_turn([each])
            if replicas == FULL:
                rows.latency(cluster, acks=acks)
    for partitions in (1, 20):
        rows.create_many(cluster, topics=20, partitions=partitions)
        rows.delete_many(cluster, topics=20, partitions=partitions)


def write(path: Path, outcomes: list[measure.Outcome]) -> None:
    """Everything so far: an interrupted run has its rows too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    path.write_text(json.dumps({"machine": machine, "rows": [o.fields() for o in outcomes]}, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
