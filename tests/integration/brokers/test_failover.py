"""Brokers and controllers that die, over real processes: nothing acknowledged is lost, and everything comes back."""

import json
import signal
import uuid

from confluent_kafka.admin import NewTopic

from tests.support.direct_producer import DirectProducer
from tests.support.load import Load
from tests.support.real_cluster import RealCluster, eventually

NOT_LEADER = 6


def test_killed_controller_is_replaced_and_nothing_acknowledged_is_lost(own_cluster: RealCluster) -> None:
    topic = "survivor"
    own_cluster.create(topic, 6, 3, min_insync_replicas="2")
    before, epoch = own_cluster.controller()
    load = Load(own_cluster, topic)
    load.start()
    eventually(lambda: len(load.acknowledged) > 500, "load runs")
    own_cluster.cluster.stop_broker(before, signal.SIGKILL)
    after, later = eventually(
        lambda: (found := own_cluster.controller())[0] not in (before, -1) and found, "a new controller", 60
    )
    assert after != before
    assert later > epoch
    eventually(
        lambda: all(p.leader not in (before, -1) for p in own_cluster.describe(topic).values()), "led by the living"
    )
    so_far = len(load.acknowledged)
    eventually(lambda: len(load.acknowledged) > so_far + 500, "load goes on")
    own_cluster.cluster.start_broker(before)
    eventually(lambda: own_cluster.isrs_full(topic), "back in every ISR", 60)
    load.stop()
    assert load.lost() == {}
    for partition in range(6):
        eventually(lambda p=partition: len(set(own_cluster.digests(topic, p).values())) == 1, "replicas equal")


def test_clean_stop_hands_over_first_and_comes_back_without_recovery(own_cluster: RealCluster) -> None:
    topic = "handed-over"
    own_cluster.create(topic, 6, 3)
    acknowledged = own_cluster.produce(topic, [(None, str(n).encode()) for n in range(1000)])
    leader = own_cluster.describe(topic)[0].leader
    own_cluster.cluster.stop_broker(leader, signal.SIGTERM)
    found = own_cluster.describe(topic)
    assert all(p.leader not in (leader, -1) for p in found.values())
    own_cluster.cluster.start_broker(leader)
    eventually(lambda: own_cluster.isrs_full(topic), "back in every ISR", 60)
    assert len(own_cluster.consume(topic, 1000)) == len(acknowledged) == 1000


def test_a_clean_stop_of_a_follower_holds_up_no_acks_all(own_cluster: RealCluster) -> None:
    """Neither where it followed nor in the partitions that it led: these a living broker leads from then on."""
    yard, staying, leaving, third = own_cluster, 0, 1, 2
    topics = {"held": [[staying, leaving, third]], "moved": [[leaving, staying]] * 6}
    new = [NewTopic(name, num_partitions=len(them), replica_assignment=them) for name, them in topics.items()]
    admin = yard.admin()  # librdkafka ends its work with the handle
    for made in admin.create_topics(new, operation_timeout=20).values():
        made.result(30)
    eventually(lambda: yard.isrs_full("held") and yard.isrs_full("moved"), "in sync")
    producers = [DirectProducer(yard.address(staying), topic) for topic in topics]
    for producer in producers:
        producer.start()
    eventually(lambda: len(producers[0].answers) > 20, "the producers run")
    yard.cluster.stop_broker(leaving, signal.SIGTERM)
    eventually(lambda: len([a for a in producers[1].answers if a == 0]) > 50, "moved and going on", 60)
    yard.cluster.start_broker(leaving)
    eventually(lambda: yard.isrs_full("held") and yard.isrs_full("moved"), "back in every ISR", 60)
    held, moved = [producer.stop() for producer in producers]
    assert set(held) == {0}
    assert set(moved) == {NOT_LEADER, 0}


def test_topic_written_by_hand_comes_alive(cluster: RealCluster) -> None:
    topic = f"hand-{uuid.uuid4().hex[:8]}"
    ids = [broker["id"] for broker in cluster.description["brokers"]]
    with cluster.zookeeper() as zk:
        data = {"version": 1, "partitions": {"0": ids, "1": ids[::-1]}}
        zk.create(f"/brokers/topics/{topic}", json.dumps(data).encode())
    eventually(lambda: topic in cluster.admin().list_topics(timeout=10).topics, "topic seen")
    eventually(lambda: cluster.isrs_full(topic), "topic led")
    assert cluster.describe(topic)[1].leader == ids[-1]
    assert len(cluster.produce(topic, [(b"k", b"v")])) == 1
    # It has no znode of settings, which the check of the znodes would tell to other tests of this cluster.
    admin = cluster.admin()
    admin.delete_topics([topic])[topic].result(30)
    eventually(lambda: topic not in cluster.admin().list_topics(timeout=10).topics, "topic deleted")
