"""Offsets of many leaders, asked at once of real sockets: one that hangs, or is gone, spoils nobody else's answer."""

import asyncio
import time
from typing import Any

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.cluster.told_offsets import ToldOffsets
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import TopicPartition
from tests.support.scripted_broker import Answer, Asked, Hang, ScriptedBroker

API_VERSIONS, METADATA, LIST_OFFSETS = 18, 3, 2
OFFERED = {API_VERSIONS: 3, METADATA: 9, LIST_OFFSETS: 6}
T0, T1, T2, T3 = (TopicPartition("t", p) for p in range(4))
GONE = 3
# Of those that hang; who waits for two of them one after the other waits twice as long.
PATIENCE_S = 2.0
NOT_LEADER = 6


class Yard:
    """Brokers 1 (answers) and 2 (accepts connections, and never answers ListOffsets); broker 3 has a closed port."""

    def __init__(self) -> None:
        self.hangs = {2}
        self.mute: set[int] = set()  # not even a connection can be made: nothing is answered
        self.first, self.second = ScriptedBroker(self.script(1), 1), ScriptedBroker(self.script(2), 2)

    def script(self, broker: int) -> Any:
        def answer(asked: Asked) -> Answer:
            if broker in self.mute:
                return Hang()
            if asked.api_key == API_VERSIONS:
                keys = [{"api_key": key, "min_version": 0, "max_version": most} for key, most in OFFERED.items()]
                return {"error_code": 0, "api_keys": keys}
            if asked.api_key == METADATA:
                return {"brokers": self.brokers(), "cluster_id": "c", "controller_id": 1, "topics": []}
            return Hang() if broker in self.hangs else self.offsets(broker, asked)

        return answer

    def brokers(self) -> list[dict[str, Any]]:
        ports = {1: self.first.port, 2: self.second.port, GONE: 1}
        return [{"node_id": node, "host": "127.0.0.1", "port": port, "rack": None} for node, port in ports.items()]

    def offsets(self, broker: int, asked: Asked) -> Answer:
        """Of broker 1's partitions, it leads number 3 no more."""
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": p.partition_index,
                        "error_code": NOT_LEADER if p.partition_index == 3 else 0,
                        "timestamp": -1,
                        "offset": 10 * broker + p.partition_index,
                        "leader_epoch": 0,
                    }
                    for p in topic.partitions
                ],
            }
            for topic in asked.body.topics
        ]
        return {"throttle_time_ms": 0, "topics": topics}


async def test_who_does_not_answer_spoils_nobody_elses_answer() -> None:
    yard = Yard()
    async with yard.first, yard.second:
        settings = ClusterSettings.read(f"127.0.0.1:{yard.first.port}", {"request_timeout_s": PATIENCE_S})

        def ask(client: KafkaClusterClient) -> tuple[ToldOffsets, float]:
            begun = time.monotonic()
            return client.told_offsets({T0: 1, T1: 2, T2: GONE, T3: 1}), time.monotonic() - begun

        client = KafkaClusterClient(settings)
        try:
            told, took_s = await asyncio.to_thread(ask, client)
            assert told.offsets == {T0: 10}
            assert told.untold[T1] == "broker 2: no answer in time"
            assert told.untold[T2].startswith("broker 3: ")
            assert told.untold[T3] == "t-3: another broker leads the partition now: try again"
            assert took_s >= PATIENCE_S * 0.9, "the others' answers do not end the wait for this one"
            again, brief_s = await asyncio.to_thread(ask, client)
            assert again.offsets == {T0: 10}
            assert brief_s < took_s, "who was silent is waited for briefly"
            assert told.silent == again.silent == {2, GONE}
            yard.hangs.clear()
            for _ in range(100):  # its connection was closed, and is made again after a moment
                told, _ = await asyncio.to_thread(ask, client)
                if T1 in told.offsets:
                    break
                await asyncio.sleep(0.1)
            assert told.offsets == {T0: 10, T1: 21}
        finally:
            await asyncio.to_thread(client.close)


async def test_a_connection_that_is_never_made_takes_no_longer_than_an_answer() -> None:
    """A broker that is stopped as by SIGSTOP: its port takes connections. kafka-python gives them ten seconds."""
    yard = Yard()
    yard.mute = {2}
    async with yard.first, yard.second:
        settings = ClusterSettings.read(f"127.0.0.1:{yard.first.port}", {"request_timeout_s": PATIENCE_S})

        def ask(client: KafkaClusterClient) -> tuple[ToldOffsets, float]:
            begun = time.monotonic()
            return client.told_offsets({T0: 1, T1: 2}), time.monotonic() - begun

        client = KafkaClusterClient(settings)
        try:
            for _ in range(2):
                told, took_s = await asyncio.to_thread(ask, client)
                assert (told.offsets, told.untold) == ({T0: 10}, {T1: "broker 2: no answer in time"})
                assert took_s < 8
        finally:
            await asyncio.to_thread(client.close)
