"""Three brokers, three replicas, acks=all, under librdkafka: what goes through, and how long it takes at 30 % and half
of that.

The client runs on the same machine and takes its share of it: rates are those of the whole, and CPU seconds per GB
are the three brokers' alone. The bare work beside a latency is that of three processes that write and replicate the
same records at the same rate, and do nothing else.
"""

from pathlib import Path

from tests.benchmarks import frames, harness
from tests.benchmarks.harness import Row
from tests.benchmarks.load import Load
from tests.benchmarks.reference import bare_replicas

PARTITIONS = 6
SECONDS = 6
LATENCY_SECONDS = 8
LOADS = (0.3, 0.5)
CONFIG = {"min.insync.replicas": "2", "log.retention.bytes": str(256 << 20), "log.cleaner.enable": "false"}
# What, bytes of a record, the producer's settings.
CASES: tuple[tuple[str, int, dict[str, str]], ...] = (
    ("1 KiB, default batches", 1024, {}),
    ("100 B, default batches", 100, {}),
    ("1 KiB, 16 KB batches", 1024, {"batch.size": "16384"}),
    ("100 B, 16 KB batches", 100, {"batch.size": "16384"}),
)


def measure(directory: Path) -> list[Row]:
    """Every row of this file; about four minutes."""
    bare_files = directory / "bare"
    bare_files.mkdir()
    three = harness.cluster_of(directory / "three", 3, CONFIG)
    with three as cluster, bare_replicas.running(bare_files) as bare:
        brokers, bare_brokers = harness.servers(cluster), bare_replicas.servers(bare)
        harness.create_topics(brokers, {frames.TOPIC: (PARTITIONS, 3)}, {})
        rows = []
        for case, size, settings in CASES:
            load = Load(brokers, size, settings)
            load.run(2, None)
            harness.warm_page_cache(directory, 1 << 30)
            full = load.run(SECONDS, None)
            gigabytes = full.records * size / 1e9
            rows += [
                Row(f"3 brokers, acks=all, {case}", full.records * size / full.seconds / 1e6, "MB/s"),
                Row("  records", full.records / full.seconds, "per s"),
                Row("  CPU of the brokers, per GB of records", full.cpu_s / gigabytes, "s"),
            ]
            for load_share in LOADS:
                rate = full.records / full.seconds * load_share
                paced = load.run(LATENCY_SECONDS, rate)
                floor = Load(bare_brokers, size, settings).run(LATENCY_SECONDS, rate)
                for share in (0.5, 0.99, 0.999):
                    took, least = (harness.percentile(run.latencies, share) * 1000 for run in (paced, floor))
                    what = f"  latency at {load_share:.0%} of that, p{share * 100:g}"
                    rows.append(Row(what, took, "ms", ceiling=least))
        return rows
