"""Stock clients of other languages, unmodified, against three real brokers: kafkajs, kafka-go and sarama."""

import signal
import time
import uuid
from collections import Counter
from typing import Any

import pytest

from tests.support.other_clients import NAMES, VERB_S, Client, answer_of, client_or_skip
from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import values

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = (0, 1, -1)


# In make test one of Go's two.
CLIENTS = [pytest.param(name, marks=[pytest.mark.long] if name == "kafka-go" else []) for name in NAMES]


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    return client_or_skip(request.param)


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def sent(prefix: str, count: int) -> set[str]:
    return {f"{prefix}-{n}" for n in range(count)}


def values_in(cluster: RealCluster, topic: str, count: int) -> set[str]:
    return {message.value().decode() for message in cluster.consume(topic, count)}


def test_what_is_sent_is_read_by_a_group_and_by_librdkafka(client: Client, cluster: RealCluster, topic: str) -> None:
    cluster.create(topic, 4, 3)
    client.do("produce", bootstrap=cluster.bootstrap, topic=topic, count=400, prefix="v")
    assert values_in(cluster, topic, 400) == sent("v", 400)
    read = client.do("consume", bootstrap=cluster.bootstrap, topic=topic, group=f"g-{topic}", count=400)
    assert sorted(read["values"]) == sorted(sent("v", 400)), "each once"
    kept = client.do("committed", bootstrap=cluster.bootstrap, topic=topic, group=f"g-{topic}")
    assert (sum(kept["offsets"]), kept["state"]) == (400, "Empty")


def test_every_codec_of_its_own_is_taken_and_every_codec_of_others_is_read(
    client: Client, cluster: RealCluster, topic: str
) -> None:
    cluster.create(topic, 1, 3)
    for codec in CODECS:
        wanted: dict[str, Any] = {"topic": topic, "count": 50, "prefix": codec, "codec": codec}
        client.do("produce", bootstrap=cluster.bootstrap, **wanted)
        others = [(None, f"other-{codec}-{n}".encode()) for n in range(50)]
        assert len(cluster.produce(topic, others, **{"compression.type": codec})) == 50
    expected = set().union(*(sent(codec, 50) | sent(f"other-{codec}", 50) for codec in CODECS))
    assert values_in(cluster, topic, 500) == expected
    read = client.do("consume", bootstrap=cluster.bootstrap, topic=topic, group=f"g-{topic}", count=500)
    assert set(read["values"]) == expected


@pytest.mark.parametrize("codec", ["gzip", "uncompressed"])
def test_a_topic_that_wants_another_codec_takes_what_it_sends(
    client: Client, cluster: RealCluster, topic: str, codec: str
) -> None:
    cluster.create(topic, 1, 3, compression_type=codec)
    client.do("produce", bootstrap=cluster.bootstrap, topic=topic, count=50, prefix="v", codec="snappy")
    assert values_in(cluster, topic, 50) == sent("v", 50)


@pytest.mark.parametrize("acks", ACKS)
def test_plain_and_idempotent_with_all_acks(client: Client, cluster: RealCluster, topic: str, acks: int) -> None:
    cluster.create(topic, 2, 3)
    wanted: dict[str, Any] = {"bootstrap": cluster.bootstrap, "topic": topic, "batch": 10}
    client.do("produce", count=100, prefix="plain", acks=acks, **wanted)
    client.do("produce", count=100, prefix="once", idempotent=True, **wanted)
    assert values_in(cluster, topic, 200) == sent("plain", 100) | sent("once", 100)


def test_a_look_by_time_finds_what_it_sent_out_of_order(client: Client, cluster: RealCluster, topic: str) -> None:
    """kafkajs sorts timestamps as text and so writes the largest of a batch too small."""
    cluster.create(topic, 1, 3)
    now = int(time.time() * 1000)
    times = [now - 3000, 999_999_999_999, now, now - 2000, now - 1000]
    client.do("produce", bootstrap=cluster.bootstrap, topic=topic, count=5, prefix="v", times=times)
    client.do("produce", bootstrap=cluster.bootstrap, topic=topic, count=1, prefix="w", times=[now - 500_000])
    found = client.do("first_since", bootstrap=cluster.bootstrap, topic=topic, time=now - 2500)
    assert found["offsets"] == [2]


def test_a_topic_from_its_creation_to_its_deletion(client: Client, cluster: RealCluster, topic: str) -> None:
    done = client.do("administer", bootstrap=cluster.bootstrap, topic=topic)
    done.pop("ms")
    assert done == {"created": "86400000", "altered": "1000", "partitions": 3, "brokers": 3, "gone": True}


def test_two_members_share_the_partitions(client: Client, cluster: RealCluster, topic: str) -> None:
    cluster.create(topic, 4, 3)
    client.do("produce", bootstrap=cluster.bootstrap, topic=topic, count=400, prefix="v")
    wanted: dict[str, Any] = {"topic": topic, "group": f"g-{topic}", "count": 400, "members": 2}
    read = client.do("consume", bootstrap=cluster.bootstrap, **wanted)
    assert set(read["values"]) == sent("v", 400)
    shares = [share or [] for share in read["shares"]]
    assert {partition for share in shares for partition in share} == {0, 1, 2, 3}


def test_a_transaction_is_committed(client: Client, cluster: RealCluster, topic: str) -> None:
    cluster.create(topic, 1, 3)
    answer = client.do("transact", bootstrap=cluster.bootstrap, topic=topic, count=1)
    # kafka-go knows the requests of a transaction, and writes no batch in one.
    assert values(cluster.bootstrap, topic) == Counter([b"v"] if answer.get("sent", 1) else [])


# From before magic 1 to what 3.9 is asked in; a group needs 0.10.2.
SARAMA_LEVELS = ("0.8.2.0", "0.10.2.1", "2.0.0", "3.6.0")
LEVELS_BETWEEN = ("0.9.0.1", "0.10.0.0", "0.11.0.0", "1.0.0", "2.4.0", "2.8.0")


@pytest.mark.parametrize(
    "level", [*SARAMA_LEVELS, *(pytest.param(level, marks=pytest.mark.long) for level in LEVELS_BETWEEN)]
)
def test_sarama_at_every_level_of_the_protocol(cluster: RealCluster, topic: str, level: str) -> None:
    sarama = client_or_skip("sarama")
    cluster.create(topic, 2, 3)
    at_level: dict[str, Any] = {"bootstrap": cluster.bootstrap, "topic": topic, "version": level}
    codecs = CODECS if level >= "2.1" else CODECS[:3] if level.startswith(("0.8", "0.9")) else CODECS[:4]
    for codec in codecs:
        sarama.do("produce", count=40, prefix=codec, codec=codec, **at_level)
    expected = set().union(*(sent(codec, 40) for codec in codecs))
    assert values_in(cluster, topic, 40 * len(codecs)) == expected
    read = sarama.do("consume", group=f"g-{topic}", count=len(expected), **at_level)
    assert set(read["values"]) == expected


@pytest.mark.long
@pytest.mark.parametrize("idempotent", [False, True])
def test_one_broker_lost_while_it_sends(client: Client, own_cluster: RealCluster, topic: str, idempotent: bool) -> None:
    # kafkajs never sends what is for a partition whose leader moves, while it sends, to a broker that has answered the
    # same send already (its sendMessages.js): it loses that on any cluster, and says that it was sent.
    own_cluster.create(topic, 1 if client.name == "kafkajs" else 3, 3, min_insync_replicas="2")
    own_cluster.create(f"{topic}-group", 1, 1)
    wanted = {"bootstrap": own_cluster.bootstrap, "topic": topic, "count": 2000, "batch": 10, "prefix": "v"}
    sending = client.start("produce", pause_ms=20, idempotent=idempotent, retries=30, **wanted)
    eventually(lambda: len(own_cluster.consume(topic, 200, 2.0)) >= 200, "it sends")
    lost = own_cluster.describe(topic)[0].leader
    own_cluster.cluster.stop_broker(lost, signal.SIGKILL)
    try:
        answer = answer_of(sending, 2 * VERB_S)
    finally:
        own_cluster.cluster.start_broker(lost)
    assert "error" not in answer, answer
    # More than were sent, so that all is read: who sends plainly may send twice.
    messages = [message.value().decode() for message in own_cluster.consume(topic, 4000, 15)]
    assert set(messages) == sent("v", 2000)
    if idempotent and client.name != "kafka-go":  # which has no idempotent producer
        assert len(messages) == 2000, "each once"
