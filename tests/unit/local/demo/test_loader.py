"""The loader against librdkafka's own mock cluster: real protocol, no broker of ours."""

import pytest

from logyard.local.demo import loader
from logyard.local.demo.dataset import Events
from logyard.local.errors import LocalError

MOCK = {"bootstrap.servers": "mock:1"}


@pytest.fixture(autouse=True)
def _mock_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    real = loader.producer_config

    def mocked(reach: loader.Reach) -> dict[str, str | int | float | bool]:
        return {**real(reach), "test.mock.num.brokers": 3, "log_level": 0}

    monkeypatch.setattr(loader, "producer_config", mocked)


def test_every_event_gets_a_place_of_its_own() -> None:
    events = Events([b"k%d" % (i % 7) for i in range(500)], [b"v%d" % i for i in range(500)])
    seen: list[tuple[int, int]] = []
    acknowledged = loader.load(MOCK, "flights", events, lambda done, total: seen.append((done, total)))
    assert len(set(zip(acknowledged.partitions.tolist(), acknowledged.offsets.tolist(), strict=True))) == 500
    assert seen[-1] == (500, 500)
    by_key = dict(zip(events.keys, acknowledged.partitions.tolist(), strict=True))
    assert all(by_key[key] == p for key, p in zip(events.keys, acknowledged.partitions.tolist(), strict=True))


def test_offsets_of_one_key_ascend() -> None:
    acknowledged = loader.load(MOCK, "flights", Events([b"k"] * 100, [b"v%d" % i for i in range(100)]))
    assert acknowledged.offsets.tolist() == list(range(100))


def test_unkeyed_events_are_acknowledged() -> None:
    assert len(loader.load_unkeyed(MOCK, "unassigned", [b"a", b"b"])) == 2


def test_a_topic_that_accepts_them_refused_none() -> None:
    assert loader.count_refused(MOCK, "unassigned", [b"a"]) == 0


def test_an_event_that_is_not_acknowledged_fails_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    mocked = loader.producer_config
    tiny = {"message.max.bytes": 1000, "queue.buffering.max.messages": 10, "compression.type": "none"}
    monkeypatch.setattr(loader, "producer_config", lambda reach: {**mocked(reach), **tiny})
    with pytest.raises(LocalError, match="flights"):
        loader.load(MOCK, "flights", Events([b"k"], [b"v" * 5000]))
