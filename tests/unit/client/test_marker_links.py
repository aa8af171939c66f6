"""WriteTxnMarkers between brokers over a real connection: its version, by what it tells and what is offered."""

from dataclasses import replace

import pytest

from logyard.broker.client.marker_links import BrokerMarkerLinks
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.replication.ports import LinkError
from logyard.broker.transactions.ports import Marker
from tests.support.scripted_broker import Answer, Asked, ScriptedBroker

T0 = TopicPartition("t", 0)
PLAIN = Marker(7, 3, 5, True, [T0])
RAISED = replace(PLAIN, producer_id=8, version=2)


class Leader:
    """Offers WriteTxnMarkers up to `version`, and writes all markers."""

    def __init__(self, version: int) -> None:
        self.version = version

    def __call__(self, asked: Asked) -> Answer:
        if asked.api_key == 18:
            return {"error_code": 0, "api_keys": [{"api_key": 27, "min_version": 0, "max_version": self.version}]}
        partitions = [{"partition_index": 0, "error_code": 0}]
        topics = [{"name": "t", "partitions": partitions}]
        return {"markers": [{"producer_id": m.producer_id, "topics": topics} for m in asked.body.markers]}


def links(broker: ScriptedBroker) -> BrokerMarkerLinks:
    return BrokerMarkerLinks(lambda _: broker.info, "PLAINTEXT", "broker-9", 5.0, version=1)


async def test_a_marker_of_an_older_client_is_sent_as_ever() -> None:
    async with ScriptedBroker(Leader(2)) as broker:
        sender = links(broker)
        assert await sender.write_markers(1, [PLAIN]) == {7: {T0: ErrorCode.NONE}}
        assert [(a.api_key, a.version) for a in broker.asked] == [(27, 1)]
        sender.close()


@pytest.mark.parametrize(("offered", "sent"), [(1, 1), (2, 2), (9, 2)])
async def test_the_version_is_told_where_it_can_be(offered: int, sent: int) -> None:
    async with ScriptedBroker(Leader(offered)) as broker:
        sender = links(broker)
        await sender.write_markers(1, [PLAIN])
        for _ in range(2):
            told = await sender.write_markers(1, [PLAIN, RAISED])
            assert told == {7: {T0: ErrorCode.NONE}, 8: {T0: ErrorCode.NONE}}
        assert [(a.api_key, a.version) for a in broker.asked] == [(27, 1), (18, 0), (27, sent), (27, sent)]
        if sent == 2:
            assert [m.transaction_version for m in broker.asked[-1].body.markers] == [0, 2]
        sender.close()


async def test_a_broker_that_was_upgraded_is_asked_again() -> None:
    script = Leader(1)
    async with ScriptedBroker(script) as broker:
        sender = links(broker)
        await sender.write_markers(1, [RAISED])
        await broker.stop()
        script.version = 2
        await broker.start()
        for _ in range(3):  # the lost connection may be noticed by the first request on it
            try:
                await sender.write_markers(1, [RAISED])
            except LinkError:
                continue
            break
        assert (broker.asked[-1].api_key, broker.asked[-1].version) == (27, 2)
        sender.close()
