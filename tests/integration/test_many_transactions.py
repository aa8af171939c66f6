"""Ten thousand open transactions, whose coordinator dies: the next one loads them, ends them, and serves meanwhile."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from logyard.broker.protocol import codec
from tests.integration.test_transactions import TRANSACTIONS, started
from tests.support.raw_transactions import (
    ADD_PARTITIONS,
    INIT_PRODUCER_ID,
    Pair,
    RawTransactions,
    coordinator_of,
    open_transactions,
)
from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import values
from tests.support.wire_client import ask

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

IDS = 10_000
CONNECTIONS = 40
TIMEOUT_MS = 45_000
SETTINGS = TRANSACTIONS | {"transaction.state.log.num.partitions": "1"}
API_VERSIONS = 18
CLIENT = {"client_software_name": "test", "client_software_version": "1"}
LONGEST_S = 2.0
# The dead broker's session, six seconds, and the load.
TAKEN_OVER_S = 20.0


@pytest.fixture
def own_yard(tmp_path: Path) -> Iterator[RealCluster]:
    yield from started(tmp_path / "cluster", SETTINGS)


class Wire:
    """One connection, one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, key: int, version: int, fields: dict[str, object]) -> object:
        self._writer.write(codec.encode_request(key, version, 1, "many", fields))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return codec.decode_response(key, version, memoryview(await self._reader.readexactly(size)))[1]

    async def open(self, name: str, topic: str) -> None:
        """Have one more transaction open."""
        begin = {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS, **Pair(-1, -1)._asdict()}
        found = await self.ask(INIT_PRODUCER_ID, 4, begin)
        assert found.error_code == 0  # type: ignore[attr-defined]  # the codec's own classes
        fields = {
            "v3_and_below_transactional_id": name,
            "v3_and_below_producer_id": found.producer_id,  # type: ignore[attr-defined]
            "v3_and_below_producer_epoch": found.producer_epoch,  # type: ignore[attr-defined]
            "v3_and_below_topics": [{"name": topic, "partitions": [0, 1, 2]}],
        }
        answer = await self.ask(ADD_PARTITIONS, 3, fields)
        results = answer.results_by_topic_v3_and_below[0].results_by_partition  # type: ignore[attr-defined]
        assert {one.partition_error_code for one in results} == {0}


async def open_all(address: str, topic: str) -> None:
    host, _, port = address.rpartition(":")

    async def some(first: int) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        wire = Wire(reader, writer)
        for number in range(first, IDS, CONNECTIONS):
            await wire.open(f"many-{number}", topic)
        writer.close()

    await asyncio.gather(*(some(first) for first in range(CONNECTIONS)))


def open_count(yard: RealCluster) -> int:
    return len(open_transactions(yard))


def longest_answer_s(address: str, until: float) -> float:
    """Ask a broker something small, over and over."""
    longest = 0.0
    while time.monotonic() < until:
        begun = time.monotonic()
        ask(address, API_VERSIONS, 3, CLIENT)
        longest = max(longest, time.monotonic() - begun)
        time.sleep(0.02)
    return longest


def test_ten_thousand_open_transactions_are_loaded_and_ended(own_yard: RealCluster) -> None:
    own_yard.create("many", 3, 3, min_insync_replicas="2")
    address = coordinator_of(own_yard, "many-0")
    begun = time.monotonic()
    asyncio.run(open_all(address, "many"))
    print(f"{IDS} are open after {time.monotonic() - begun:.1f} s")
    writer = RawTransactions(own_yard, "writer", TIMEOUT_MS)
    pair = writer.begin_life()
    assert writer.add(pair, "many") == 0
    assert writer.produce(pair, "many", b"never committed") == 0
    dead = next(b["id"] for b in own_yard.description["brokers"] if f"{b['host']}:{b['port']}" == address)
    own_yard.cluster.stop_broker(dead, signal.SIGKILL)
    own_yard.cluster.start_broker(dead)
    lasting = time.monotonic()
    eventually(lambda: open_count(own_yard) == IDS + 1, "the next coordinator has them all", 40)
    taken_over_s = time.monotonic() - lasting
    print(f"another has them {taken_over_s:.1f} s after that")
    assert taken_over_s < TAKEN_OVER_S
    own_yard.produce("many", [(None, b"kept")])
    address = coordinator_of(own_yard, "many-0")
    longest_s = longest_answer_s(address, begun + TIMEOUT_MS / 1000 + 15)
    print(f"longest answer while they time out: {longest_s:.3f} s")
    eventually(lambda: open_count(own_yard) == 0, "all of them are aborted", 60)
    print(f"none is open {time.monotonic() - begun - TIMEOUT_MS / 1000:.1f} s after the first one's time")
    assert longest_s < LONGEST_S
    eventually(lambda: values(own_yard.bootstrap, "many") == Counter([b"kept"]), "what is behind them is read")
