"""Which rows `make bench-reference` measures."""

import signal
from functools import partial

from tests.benchmarks.reference import bare_replicas, many_clients, moves, reading, spark_jobs, transactions
from tests.benchmarks.reference import rows as work
from tests.benchmarks.reference.measure import Row

CODECS = ("none", "lz4")


def _librdkafka(size: int, replicas: int, codec: str, *, large: bool = False) -> Row:
    acks = "1" if replicas == 1 else "all"
    each = partial(work.produce_and_consume, size=size, replicas=replicas, acks=acks, codec=codec, large=large)
    return Row(f"librdkafka {size} B, RF {replicas}, acks={acks}, {codec}{', large batches' if large else ''}", each)


def _tls() -> list[Row]:
    made = [
        Row(
            f"TLS, librdkafka {size} B, RF {replicas}, none",
            partial(
                work.produce_and_consume,
                size=size,
                replicas=replicas,
                acks="1" if replicas == 1 else "all",
                codec="none",
                tls=True,
            ),
        )
        for size in (100, 1024, 16384)
        for replicas in (1, 3)
    ]
    return [*made, Row("TLS, 500 records/s of 1 KiB, RF 3, acks=all", partial(bare_replicas.latency, by_tls=True))]


def _transactions() -> list[Row]:
    made = [
        Row(
            f"{client}: transactions of {records} x 100 B, {producers} producer{'s' if producers > 1 else ''}",
            partial(work_of, records=records, producers=producers, transactions=200 if producers == 1 else 1600),
        )
        for client, work_of in (("librdkafka", transactions.commits), ("Java", transactions.java_commits))
        # Most transactions first: Java's machines are quick only after some thousands.
        for records, producers in ((1, 8), (100, 8), (1, 1), (100, 1))
    ]
    made += [
        Row(
            f"librdkafka: transactions of {records:,} x {size} B",
            partial(transactions.written_and_read, size=size, records=records, megabytes=megabytes),
        )
        for records, size, megabytes in ((1_000, 100, 100), (1_000, 1024, 300))
    ]
    return made


def _brokers_at_work() -> list[Row]:
    """Rows in which the brokers work more than the clients."""
    made = [
        Row(
            f"reading: {count} x kcat, {'cold' if cold else 'hot'}",
            partial(reading.many_readers, readers=count, cold=cold),
        )
        for cold in (False, True)
        for count in (1, 10, 50)
    ]
    made += [
        Row("reading: Fetch v2, down-converted", reading.converted),
        Row("reading: one small batch a fetch", reading.small_fetches),
        Row("reading: a new replica catches up", reading.catch_up),
        Row("reading: offsets by time", many_clients.lookups),
    ]
    made += [
        Row(f"clients: a topic of {codec}, a producer without", partial(reading.recompressed, codec=codec))
        for codec in ("lz4", "zstd", "gzip")
    ]
    made += [
        Row("clients: 1,000 producers of 10 records a second", many_clients.trickle),
        Row("clients: 1,000 groups", many_clients.groups),
        Row("clients: 100 ask for 1,000 topics at once", partial(many_clients.metadata_rush, topics=1000, clients=100)),
        # The last one: its topics stay.
        Row("clients: 1,000 ask for 10,000 topics at once", many_clients.metadata_rush, rounds=3),
    ]
    return made


def rows() -> list[Row]:
    """In the order in which they run; memory is looked at before and after the load."""
    made = [Row("memory, idle", work.resident, rounds=1)]
    made += [
        _librdkafka(size, replicas, codec) for size in (100, 1024, 16384) for replicas in (1, 3) for codec in CODECS
    ]
    made += [_librdkafka(size, 3, codec, large=True) for size in (100, 1024) for codec in CODECS]
    made += [
        Row(f"Java producer {size} B, RF 3, acks=all", partial(work.java_produce, size=size, acks="all"))
        for size in (100, 1024)
    ]
    made += [
        Row("500 records/s of 1 KiB, RF 3, acks=1", partial(work.latency, acks="1")),
        Row("500 records/s of 1 KiB, RF 3, acks=all", bare_replicas.latency),
    ]
    made += [
        *_tls(),
        Row("commits one by one", work.commits),
        *_transactions(),
        Row("rebalance of 100 members", partial(work.rebalances, members=100)),
        Row("controller failover, few partitions", moves.failover),
        # What is created is deleted later: see create_many.
        *(
            Row(f"{name}, {what}", partial(each, topics=topics, partitions=partitions), rounds=3)
            for what, each in (("created", work.create_many), ("deleted", work.delete_many))
            for name, topics, partitions in (
                ("1 topic of 1,000 partitions", 1, 1000),
                ("1,000 topics of 1 partition", 1000, 1),
            )
        ),
        Row("restart of one broker, clean", partial(work.restart, number=signal.SIGTERM)),
        Row("restart of one broker, killed", partial(work.restart, number=signal.SIGKILL)),
        Row("memory, after all this", work.resident, rounds=1),
        Row("10 GB to another broker", partial(moves.reassign, gigabytes=10, throttle=0), rounds=3),
        Row("3 GB to another broker at 100 MB/s", partial(moves.reassign, gigabytes=3, throttle=100_000_000), rounds=3),
        Row("controlled shutdown, 3,000 leaders", moves.shutdown, rounds=3),
        Row("controller failover, 10,000 partitions", partial(moves.failover, partitions=10_000)),
        Row("compaction of 1 GB, ours by Spark", spark_jobs.compaction, rounds=3),
        Row("compaction of 1 GB, ours by the cleaner", partial(spark_jobs.compaction, spark=False), rounds=3),
        Row("export of 1 GB to Parquet", spark_jobs.export, rounds=3),
        Row("audit of 1 GB, every record", spark_jobs.audit, rounds=3),
        *_brokers_at_work(),
    ]
    return made
