"""`make bench-reference`: our brokers and Apache Kafka's, the same work in one run; a table, and JSON.

    python -m tests.benchmarks.reference [--only WORDS] [--rounds N] [--brokers OURS KAFKA] [--json FILE]

Both clusters stand beside each other, three brokers each with a ZooKeeper of its own, and work in turn. Kafka's run
with the JVM options of its own start script. `--brokers 2 1`: two of ours beside one of Kafka's, as on one large host,
for rows with one replica.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.reference import catalogue, measure, rows, tls
from tests.support import kafka

OUT = Path(__file__).resolve().parents[3] / "build" / "bench-reference.json"
# kafka-run-class.sh and kafka-server-start.sh of 3.9
KAFKA_JVM = (
    *("-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
CONFIG = {
    "log.segment.delete.delay.ms": "1000",
    # A group's first members come together; later rebalances do not wait.
    "group.initial.rebalance.delay.ms": "2000",
    # A machine that is busy with the load is not to look like a dead broker.
    "zookeeper.session.timeout.ms": "18000",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="rows whose name has these words; repeatable")
    parser.add_argument("--rounds", type=int, help="counted runs a row (default: 5)")
    parser.add_argument("--brokers", type=int, nargs=2, default=(3, 3), metavar=("OURS", "KAFKA"), help="how many")
    parser.add_argument("--json", type=Path, default=OUT)
    options = parser.parse_args()
    chosen = [row for row in catalogue.rows() if not options.only or any(o in row.name for o in options.only)]
    if options.rounds:
        chosen = [
            replace(row, rounds=min(row.rounds, options.rounds) if row.rounds == 1 else options.rounds)
            for row in chosen
        ]
    outcomes: list[measure.Outcome] = []
    with tempfile.TemporaryDirectory(prefix="logyard-bench-") as home:
        mine, other = Path(home, "ours"), Path(home, "kafka")
        many, few = options.brokers
        ours = kafka.running(mine, "O" * many, CONFIG | tls.prepare(mine, many))
        theirs = kafka.running(other, "K" * few, CONFIG | tls.prepare(other, few), jvm=KAFKA_JVM)
        with ours as a, theirs as b:
            for cluster in (a, b):
                rows.create(cluster, "kept", 30, min(3, *options.brokers))
                cluster.produce("kept", [(None, os.urandom(1000)) for _ in range(100_000)])
            for row in chosen:
                found = measure.compare(row, a, b)
                outcomes += found
                print(*measure.table(found).splitlines()[2 : 2 + len(found)], sep="\n", flush=True)
                write(options.json, outcomes)
    print(f"\n{measure.table(outcomes)}")
    return 0


def write(path: Path, outcomes: list[measure.Outcome]) -> None:
    """Everything so far: an interrupted run has its rows too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    path.write_text(json.dumps({"machine": machine, "rows": [o.fields() for o in outcomes]}, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
