"""The brokers of docker-compose.yaml on hosts that are not well: a disk that is full, and a clock apart.

Three ZooKeeper nodes and three brokers, without the rest. A producer sends with acks=all all the time.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import OFFSET_END, Consumer, ElectionType, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from logyard.local.demo import checks, cluster_view
from logyard.local.demo.traffic import Traffic
from logyard.local.errors import LocalError
from tests.compose import images
from tests.compose.composed import Composed, eventually, services
from tests.compose.images import Podman
from tests.compose.site import BROKERS, ComposedSite
from tests.compose.small_disk import MEGABYTE, SmallDisk, small_disk
from tests.support.needed import lacks

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1800)]

FULL, APART = 2, 1  # the broker whose disk is small, the one whose clock is set
DISK_MB, FREE_MB = 1024, 64
HOSTS = [name for name in services() if name.startswith(("zookeeper", "broker")) or name == "prepare"]
AHEAD = timedelta(hours=8)
PATIENCE_S = 300.0
# They do not compress, so a disk is soon full.
VALUES = [random.Random(seed).randbytes(20_000) for seed in range(64)]


class Brokers:
    """The running brokers, and what is sent to them."""

    def __init__(self, composed: Composed, site: ComposedSite, disk: SmallDisk) -> None:
        self.composed, self.site, self.disk = composed, site, disk
        self.admin = AdminClient({**site.reach, "log_level": 0})

    def create(self, topic: str, leader: int, **config: str) -> None:
        """Create a topic of three partitions, which one broker leads by preference."""
        others = sorted(BROKERS.keys() - {leader})
        keys = {"min.insync.replicas": "2", **{key.replace("_", "."): value for key, value in config.items()}}
        placed = [[leader, *others]] * 3
        self.admin.create_topics([NewTopic(topic, 3, replica_assignment=placed, config=keys)])[topic].result(60)

    def isr(self, topic: str) -> set[int]:
        """Return the brokers that are in sync for every partition of the topic."""
        found = cluster_view.look(self.site.reach).of(topic).values()
        return set.intersection(*(set(partition.isr) for partition in found))

    def leaders(self, topic: str) -> set[int]:
        return {partition.leader for partition in cluster_view.look(self.site.reach).of(topic).values()}

    def lead_by_preference(self, topic: str, leader: int) -> None:
        """Give the topic's partitions back to the broker that leads them by preference."""
        places = [TopicPartition(topic, partition) for partition in range(3)]
        self.admin.elect_leaders(ElectionType.PREFERRED, places).result(60)
        eventually(lambda: self.leaders(topic) == {leader}, f"{leader} leads {topic}")

    def written(self, topic: str) -> int:
        """Return how many records are on all in-sync replicas."""
        consumer = self._consumer()
        try:
            return sum(consumer.get_watermark_offsets(TopicPartition(topic, p), 20)[1] for p in range(3))
        except KafkaException as error:
            raise LocalError(str(error)) from error
        finally:
            consumer.close()

    def await_more(self, topic: str, count: int) -> None:
        """Wait until so many more records are written."""
        wanted = eventually(lambda: self.written(topic), f"records of {topic}") + count
        eventually(lambda: self.written(topic) >= wanted, f"{count} more records of {topic}", PATIENCE_S)

    def last(self, topic: str) -> Message:
        """Return the last record of a partition that has one."""
        consumer = self._consumer()
        try:
            ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 20)[1] for p in range(3)}
            partition = max(ends, key=lambda p: ends[p])
            consumer.assign([TopicPartition(topic, partition, ends[partition] - 1)])
            found = eventually(lambda: consumer.poll(5), f"the last record of {topic}")
            assert found.error() is None
            return found
        finally:
            consumer.close()

    def first_at(self, topic: str, moment: datetime) -> list[int]:
        """Return, for each partition, the first offset whose timestamp is not below the moment; -1 where none is."""
        consumer = self._consumer()
        try:
            asked = [TopicPartition(topic, p, int(moment.timestamp() * 1000)) for p in range(3)]
            found = consumer.offsets_for_times(asked, 30)
            return [-1 if place.offset == OFFSET_END else place.offset for place in found]
        finally:
            consumer.close()

    def set_clock(self, broker: int, text: str) -> None:
        """Set a broker's clock, and wait until its host goes by it."""
        service = f"broker{broker}"
        self.composed.exec(service, "sh", "-c", f"echo {text} > /var/lib/logyard/clock")
        eventually(lambda: abs(self.clock(broker) - _wanted(text)) < timedelta(minutes=5), f"{service}'s clock")

    def clock(self, broker: int) -> datetime:
        return datetime.fromtimestamp(int(self.composed.exec(f"broker{broker}", "date", "+%s")), UTC)

    def _consumer(self) -> Consumer:
        return Consumer({**self.site.reach, "group.id": "unused", "enable.auto.commit": False, "log_level": 0})


def _wanted(text: str) -> datetime:
    return datetime.now(UTC) + (AHEAD if text == "+8h" else timedelta())


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    outside = tmp_path_factory.mktemp("outside")
    with ExitStack() as stack:
        try:
            podman = Podman.of_tests()
            images.make_all(podman)
            images.make_clock(podman)
            disk = stack.enter_context(small_disk(outside / "disk", DISK_MB, FREE_MB))
        except LocalError as error:
            lacks(str(error))
        changes = {f"broker{APART}": {"image": images.CLOCK}}
        composed = stack.enter_context(Composed(podman, HOSTS, changes, {f"broker{FULL}": disk.mount}))
        stack.callback(composed.keep_logs, images.ROOT / "build" / "compose-logs-of-hosts")
        running = Brokers(composed, ComposedSite(composed, outside, asked="broker3"), disk)
        eventually(running.site.in_sync, "three brokers", PATIENCE_S)
        yield running


def test_a_broker_whose_disk_is_full_leaves_and_comes_back(brokers: Brokers) -> None:
    """It leads, and the others take over; once there is room it is back by itself."""
    brokers.create("fills", FULL, segment_bytes="4194304")
    traffic = Traffic(brokers.site.reach, "fills", VALUES)
    traffic.start()
    try:
        eventually(lambda: FULL not in brokers.isr("fills"), "the broker is out", PATIENCE_S)
        assert brokers.disk.free < MEGABYTE, "for no other reason"
        said = brokers.composed.logs(f"broker{FULL}", 5_000)
        brokers.await_more("fills", 500)
        assert FULL not in brokers.leaders("fills")
        brokers.disk.make_room()
        eventually(brokers.site.in_sync, "it is back, in sync", PATIENCE_S)
        brokers.await_more("fills", 500)
        acknowledged, values = traffic.end()
    finally:
        traffic.close()
    sent = checks.acknowledged_table(acknowledged, None, values)
    for who in ("its new leaders", "the one that was away"):
        difference = checks.compare(sent, checks.read_topic(brokers.site.reach, "fills"))
        assert not difference, f"{who}: {difference}"
        brokers.lead_by_preference("fills", FULL)
    assert "No space left on device" in said


def test_a_clock_hours_ahead_that_jumps_back(brokers: Brokers) -> None:
    """Leadership, sessions and fetches go by what never jumps; only what the leader stamps tells its clock."""
    brokers.create("stamped", APART, message_timestamp_type="LogAppendTime")
    begun = datetime.now(UTC)
    epoch = brokers.site.controller()[1]
    traffic = Traffic(brokers.site.reach, "stamped", VALUES)
    traffic.start()
    try:
        brokers.await_more("stamped", 200)
        brokers.set_clock(APART, "+8h")
        brokers.await_more("stamped", 500)
        assert stamp(brokers.last("stamped")) > begun + AHEAD
        assert brokers.site.in_sync()
        brokers.set_clock(APART, "+0")
        brokers.await_more("stamped", 500)
        assert begun < stamp(brokers.last("stamped")) < begun + AHEAD / 2
        assert brokers.site.in_sync()
        assert brokers.leaders("stamped") == {APART}
        assert brokers.site.controller()[1] == epoch, "nobody was taken for dead"
        assert max(brokers.first_at("stamped", begun + AHEAD)) > 0, "what was stamped ahead is found by its stamp"
        brokers.composed.kill(f"broker{APART}")
        brokers.await_more("stamped", 500)
        eventually(brokers.site.in_sync, "it is back, in sync", PATIENCE_S)
        acknowledged, values = traffic.end()
    finally:
        traffic.close()
    sent = checks.acknowledged_table(acknowledged, None, values)
    difference = checks.compare(sent, checks.read_topic(brokers.site.reach, "stamped"))
    assert not difference, str(difference)


def stamp(message: Message) -> datetime:
    return datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
