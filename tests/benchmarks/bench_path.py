"""What a request costs in the broker's Python, without sockets: `python -m tests.benchmarks.bench_path`.

`--profile ROW` prints cProfile's view of one row instead (its own cost is in the figures: read them as shares).
"""

import argparse
import asyncio
import cProfile
import pstats
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import uvloop

from logyard.broker.config.relations import ACL_AUTHORIZER
from logyard.broker.znodes.acls import AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from tests.benchmarks import frames
from tests.benchmarks.measuring import least_cpu_us, warm_page_cache
from tests.support.inside_broker import InsideBroker

ROUNDS = 12
ACLS = 10_000
# What goes in at one time: what a busy socket's buffer holds.
TOGETHER_BYTES = 60_000
# The batches of 279 bytes in SMALL_TOPIC; those that follow each other in requests are so many apart.
SMALL_BATCHES, SMALL_STEP = 10_000, 7919
# What is looked for lies the usual few batches behind an entry of the index.
TIMED_BATCHES, TIMED_MS = 1000, frames.RECORD_MS + 500_000
SETTINGS = {"log.segment.bytes": str(256 << 20), "log.retention.bytes": str(1 << 30)}


def rows(broker: InsideBroker, share: int = 1) -> dict[str, tuple[Callable[[], None], int]]:
    """What can be measured: by name, the work of one round and how many requests it is; `share` 20: a twentieth."""
    connection = broker.connect()

    def repeat(frame: bytes, calls: int, together: int) -> tuple[Callable[[], None], int]:
        data = frame * together
        turns = max(1, calls // share // together)

        def work() -> None:
            for _ in range(turns):
                connection.feed(data)
            if connection.connection.busy:
                raise RuntimeError("an answer has to wait, for a cold read perhaps: nothing was measured")

        return work, turns * together

    def each(asked: list[bytes]) -> tuple[Callable[[], None], int]:
        asked = asked[: len(asked) // share]

        def work() -> None:
            for frame in asked:
                connection.feed(frame)
            if connection.connection.busy:
                raise RuntimeError("an answer has to wait, for a cold read perhaps: nothing was measured")

        return work, len(asked)

    def batched(frame: bytes, calls: int) -> tuple[Callable[[], None], int]:
        return repeat(frame, calls, max(1, TOGETHER_BYTES // len(frame)))

    offsets = (number * SMALL_STEP % SMALL_BATCHES for number in range(4000))
    small, middle, large = frames.produce(200, 1), frames.produce(1000, 16), frames.produce(9000, 100)
    return {
        "Produce 279 B": repeat(small, 4000, 1),
        "Produce 279 B, pipelined": batched(small, 8000),
        "Produce 16 KB": repeat(middle, 2000, 1),
        "Produce 900 KB": repeat(large, 100, 1),
        "Fetch 252 KB": repeat(frames.fetch(1000, 252_000), 1000, 1),
        "Fetch of one small batch": each([frames.fetch(at, 100, topic=frames.SMALL_TOPIC) for at in offsets]),
        "Fetch at the end": repeat(frames.fetch(0, 1 << 20, topic=frames.WIDE_TOPIC, max_wait_ms=0), 4000, 1),
        "Metadata of 1000 partitions": repeat(frames.metadata(), 2000, 1),
        "ListOffsets by time": repeat(frames.offset_at(TIMED_MS, topic=frames.TIMED_TOPIC), 4000, 1),
    }


async def fill(broker: InsideBroker) -> None:
    """Make the topics of `rows`, what the fetches of small batches read, and what is searched by time.

    That is batches of ten records, a second apart.
    """
    await broker.create_topic(frames.TOPIC, 1)
    await broker.create_topic(frames.WIDE_TOPIC, 1000)
    await broker.create_topic(frames.SMALL_TOPIC, 1)
    await broker.create_topic(frames.TIMED_TOPIC, 1)
    connection, frame = broker.connect(), frames.produce(200, 1, topic=frames.SMALL_TOPIC)
    for _ in range(SMALL_BATCHES):
        connection.feed(frame)
    for number in range(TIMED_BATCHES):
        time_ms = frames.RECORD_MS + number * 1000
        connection.feed(frames.produce(100, 10, topic=frames.TIMED_TOPIC, time_ms=time_ms))
    connection.feed(frames.metadata())  # made in turns of the loop; from now on it is cached
    while connection.connection.busy:
        await asyncio.sleep(0.01)


async def measure_rights(directory: Path, rounds: int, wanted: str) -> None:
    """The small Produce again, with an authorizer that knows ten thousand ACLs."""
    name = f"Produce 279 B, {ACLS:,} ACLs"
    if wanted not in name:
        return
    async with InsideBroker(directory, {"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:root"}) as broker:
        acls = broker.components.authorization.acls
        assert acls is not None
        for number in range(ACLS // 4):
            for kind, topic in ((PatternType.LITERAL, f"topic-{number}"), (PatternType.PREFIXED, f"prefix-{number}-")):
                users = (f"User:{number}", f"User:{number + 1}")
                entries = [AclEntry(user, Permission.ALLOW, Operation.WRITE) for user in users]
                acls.known.put(ResourcePattern(ResourceType.TOPIC, topic, kind), entries)
        anybody = AclEntry("User:ANONYMOUS", Permission.ALLOW, Operation.ALL)
        everything = ((ResourceType.CLUSTER, "kafka-cluster"), (ResourceType.TOPIC, frames.TOPIC))
        for resource, topic in everything:
            acls.known.put(ResourcePattern(resource, topic), [anybody])
        while not broker.components.controller.is_active:
            await asyncio.sleep(0.01)
        await broker.create_topic(frames.TOPIC, 1)
        work, calls = rows(broker)["Produce 279 B"]
        work()
        print(f"{name:40s}{least_cpu_us(work, calls, rounds):10.1f} µs", flush=True)


async def measure(directory: Path, profiled: str | None, rounds: int, wanted: str) -> None:
    async with InsideBroker(directory, SETTINGS) as broker:
        await fill(broker)
        found = rows(broker)
        found["Produce 16 KB"][0]()
        if profiled is not None:
            work, _ = found[profiled]
            work()
            profile = cProfile.Profile()
            profile.runcall(work)
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)
            return
        for name, (work, calls) in found.items():
            if wanted not in name:
                continue
            work()
            print(f"{name:40s}{least_cpu_us(work, calls, rounds):10.1f} µs", flush=True)
    await measure_rights(directory / "rights", rounds, wanted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", metavar="ROW", help="profile one row instead of measuring all")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rows", metavar="TEXT", default="", help="only rows that contain this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        warm_page_cache(Path(directory), 1 << 30)
        uvloop.run(measure(Path(directory), options.profile, options.rounds, options.rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
