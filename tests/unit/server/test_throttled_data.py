"""Produce, Fetch and Metadata under quotas: what is told, what is held back, and that nothing is lost (KIP-219)."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode
from logyard.broker.log.producers import Origin
from logyard.broker.metadata.dynamic_configs import DEFAULT_ENTITY, DynamicConfigs
from logyard.broker.model import ZERO_TOPIC_ID
from logyard.broker.protocol import codec
from logyard.broker.replication.events import ProduceResult
from logyard.broker.replication.fetch.sessions import FetchSessions
from logyard.broker.security.quotas import Quotas, Windows
from logyard.broker.server.answer_cache import AnswerCache
from logyard.broker.server.api_table import APIS
from logyard.broker.server.handlers import fetch, metadata, produce
from logyard.broker.server.request import Fields, Request, Session
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.services import Services
from tests.support import batches
from tests.support.disk_logs import batch
from tests.support.replica_world import T0, World

PRODUCE, FETCH, METADATA = 0, 1, 3


class Broker:
    """One leading broker, its handlers' services, and whom they muted."""

    def __init__(self, **quotas: str) -> None:
        self.world = World()
        self.world.tell(self.world.order(replicas=(1,)))
        self.configs = DynamicConfigs(1, lambda overrides: TopicConfig())
        self.configs.set_quota(None, DEFAULT_ENTITY, quotas)
        self.muted: list[int] = []
        self.believes = -1  # the leader epoch that fetches name
        clock = self.world.clock
        made = SimpleNamespace(
            replicas=self.world.replicas,
            metadata=self.world.metadata,
            configs=self.configs,
            quotas=Quotas(self.configs, Windows(), Windows(), lambda: clock.monotonic() * 1000),
            fetch_sessions=FetchSessions(self.world.replicas.hosted, lambda: 77),
            fetch_bytes_max=1 << 26,
            metadata_answers=AnswerCache(),
            rights=EverythingAllowed(),
            cluster_id="c",
            config=SimpleNamespace(bool=lambda key: False),
        )
        self.services = cast(Services, made)

    def ask(self, handler: Any, version: int, fields: Fields) -> Any:
        key = next(key for key, api in APIS.items() if api.handler is handler.HANDLER)
        frame = memoryview(bytearray(codec.encode_request(key, version, 1, "c", fields)))[4:]
        body = frame[11 + codec.is_flexible(key, version) :]
        session = Session(1, "PLAINTEXT", "127.0.0.1", mute=self.muted.append)
        answer = handler.handle(self.services, Request(key, version, 1, "c", body, session))
        whole = b"".join(answer) if isinstance(answer, list) else bytes(answer)
        return codec.decode_response(key, version, memoryview(whole)[4:])[1]

    def fetch(
        self, session_id: int, epoch: int, *offsets: int, replica: int = -1, version: int = 12, topic_id: Any = None
    ) -> Any:
        partitions = [
            {
                "partition": 0,
                "fetch_offset": offset,
                "partition_max_bytes": 1 << 20,
                "current_leader_epoch": self.believes,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
            }
            for offset in offsets
        ]
        fields = {
            "replica_id": replica,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "session_id": session_id,
            "session_epoch": epoch,
            "topics": [{"topic": "flights", "topic_id": topic_id or ZERO_TOPIC_ID, "partitions": partitions}]
            if partitions
            else [],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        return self.ask(fetch, version, fields)


def records_of(answer: Any) -> int:
    return sum(len(p.records or b"") for topic in answer.responses for p in topic.partitions)


def test_a_throttled_session_gets_nothing_and_then_everything() -> None:
    broker = Broker(consumer_byte_rate="1")
    size = len(batch())
    assert size > 11
    opened = broker.fetch(0, 0, 0)
    assert (opened.session_id, opened.throttle_time_ms) == (77, 0)
    broker.world.replicas.producing.append([(T0, batch())], acks=1, timeout_ms=0, origin=Origin.CLIENT)
    held = broker.fetch(77, 1)
    assert (held.error_code, held.session_id, records_of(held)) == (0, 77, 0)
    assert held.throttle_time_ms > 0
    assert broker.muted == [held.throttle_time_ms]
    broker.configs.set_quota(None, DEFAULT_ENTITY, {"consumer_byte_rate": "1000000"})
    served = broker.fetch(77, 2)
    assert records_of(served) == size, "what was held back is not forgotten, though nothing new has come"
    assert served.throttle_time_ms == 0


def test_a_throttled_fetch_without_a_session_opens_none() -> None:
    broker = Broker(consumer_byte_rate="1")
    broker.world.replicas.producing.append([(T0, batch())], acks=1, timeout_ms=0, origin=Origin.CLIENT)
    held = broker.fetch(0, 0, 0)
    assert (held.session_id, held.error_code, records_of(held)) == (0, 0, 0)
    assert held.throttle_time_ms > 0


def test_followers_are_not_clients() -> None:
    broker = Broker(consumer_byte_rate="1", request_percentage="0.0000001")
    broker.world.tell(broker.world.order(leader_epoch=1, partition_epoch=1))
    broker.world.replicas.producing.append([(T0, batch())], acks=1, timeout_ms=0, origin=Origin.CLIENT)
    answer = broker.fetch(0, 0, 0, replica=2)
    assert records_of(answer) == len(batch())
    assert (answer.throttle_time_ms, broker.muted) == (0, [])


@pytest.mark.parametrize(("acks", "quota"), [(1, "producer_byte_rate"), (1, "request_percentage")])
def test_produced_bytes_and_time_are_told_in_the_answer(acks: int, quota: str) -> None:
    broker = Broker(**{quota: "0.0000001"})
    records = batches.batch([batches.Rec(0, None, b"v")]).encode()
    appended = [ProduceResult(T0, ErrorCode.NONE, 0)]
    producing = SimpleNamespace(
        append=lambda entries, **how: appended, begin_validation=lambda entries, validated_by, **how: (None, ())
    )
    broker.services.replicas = SimpleNamespace(producing=producing)  # type: ignore[assignment]
    fields = {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 1000,
        "topic_data": [{"name": "flights", "partition_data": [{"index": 0, "records": records}]}],
    }
    answer = broker.ask(produce, 9, fields)
    assert answer.responses[0].partition_responses[0].error_code == 0, "served at once"
    assert answer.throttle_time_ms > 0
    assert broker.muted == [answer.throttle_time_ms]


@pytest.mark.parametrize("version", [2, 3, 8, 9, 12])
def test_metadata_kept_or_made_anew_tells_the_time_and_nothing_else_changes(version: int) -> None:
    free, held = Broker(), Broker(request_percentage="0.0000001")
    fields: dict[str, Any] = {"topics": None if version else [], "allow_auto_topic_creation": False}
    expected = free.ask(metadata, version, fields).as_dict()
    for _ in range(2):  # made, then kept
        told = held.ask(metadata, version, fields).as_dict()
        if version >= 3:
            assert told["throttle_time_ms"] == 1000
            told["throttle_time_ms"] = 0
        assert told == expected
    assert held.muted == [1000, 1000]
    assert free.muted == []
