"""Generate, execute, verify and cancel against the cluster in memory, and the words of Kafka's tool."""

import json
import random
from typing import Any

import pytest

from logyard.admin.cluster.snapshot import ClusterSnapshot, NewTopic, ReplicaSize
from logyard.admin.reassignment import command, status
from logyard.admin.reassignment.ending import ReassignmentRefused
from logyard.admin.reassignment.json_files import BadReassignment, Replica
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.progress import CopyProgress, MoveState, copy_progress, move_states
from logyard.admin.reassignment.proposal import propose
from logyard.admin.reassignment.status import DirectoryMove
from logyard.admin.reassignment.throttles import settings
from logyard.admin.reassignment.throttles.book import ThrottleBook
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import Assignment, TopicPartition
from tests.support.memory_clients import MemoryClient, MemoryPause
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_records import MemoryRecords, throttle_owner

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RATES = (settings.LEADER_RATE, settings.FOLLOWER_RATE)


class Yard:
    """Four brokers, one topic, and what was said."""

    def __init__(self, racks: dict[int, str | None] | None = None) -> None:
        self.cluster = MemoryCluster(racks or {1: None, 2: None, 3: None, 4: None}, ticks_to_move=8)
        self.client = MemoryClient(self.cluster)
        self.client.create_topic(NewTopic("t", assignment={0: (1, 2), 1: (2, 3)}))
        self.client.snapshot()
        self.pause = MemoryPause(self.cluster)
        self.said: list[str] = []

    def execute(self, text: str, **options: Any) -> None:
        command.execute(self.client, text, owner=throttle_owner(), pause=self.pause, say=self.said.append, **options)

    def verify(self, text: str, **options: bool) -> bool:
        self.said.clear()
        return command.verify(
            self.client, text, owner=throttle_owner(), pause=self.pause, say=self.said.append, **options
        )

    def cancel(self, text: str, **options: bool) -> None:
        self.said.clear()
        command.cancel(
            self.client,
            text,
            owner=throttle_owner(),
            pause=self.pause,
            say=self.said.append,
            say_on=self.said.append,
            **options,
        )

    def throttled(self) -> bool:
        brokers = any(key in RATES for values in self.cluster.broker_config.values() for key in values)
        return brokers or any(key in settings.TOPIC_THROTTLES for key in self.cluster.configs["t"])


def plan(*moves: tuple[TopicPartition, list[int]], **more: object) -> str:
    entries = [{"topic": tp.topic, "partition": tp.partition, "replicas": replicas, **more} for tp, replicas in moves]
    return json.dumps({"version": 1, "partitions": entries})


MOVE = plan((T0, [3, 4]))


@pytest.fixture
def yard() -> Yard:
    return Yard()


def test_a_throttled_move_from_start_to_end(yard: Yard) -> None:
    yard.execute(MOVE, throttle=1000)
    assert yard.said == [
        "Current partition replica assignment\n\n"
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}\n\n'
        "Save this to use as the --reassignment-json-file option during rollback",
        "Warning: You must run --verify periodically, until the reassignment completes, "
        "to ensure the throttle is removed.",
        "The inter-broker throttle limit was set to 1000 B/s",
        "Successfully started partition reassignment for t-0",
    ]
    assert yard.cluster.configs["t"] == {settings.LEADERS: "0:1,0:2", settings.FOLLOWERS: "0:3,0:4"}
    assert yard.cluster.broker_config == {b: dict.fromkeys(RATES, "1000") for b in (1, 2, 3, 4)}

    assert not yard.verify(MOVE)
    assert yard.said[0].endswith("\nReassignment of partition t-0 is still in progress.")
    assert yard.throttled()

    told: list[str] = []
    command.await_end(yard.client, MOVE, pause=yard.pause, tell=told.append)
    assert told[0].startswith("0 of 1 partitions")
    assert yard.verify(MOVE)
    assert yard.said == [
        "Status of partition reassignment:\nReassignment of partition t-0 is completed.",
        "",
        "Clearing broker-level throttles on brokers 1,2,3,4",
        "Clearing topic-level throttles on topic t",
    ]
    assert not yard.throttled()


def test_a_broker_that_does_not_tell_its_bytes_ends_no_wait_and_no_warning(yard: Yard) -> None:
    yard.cluster.sizes[T0] = 1000
    yard.cluster.disks = {(3, "/data/3"): (1000, 1)}
    yard.cluster.hung = {4}
    yard.execute(text := plan((T0, [2, 3])))
    assert any("broker 3: 1000 B come and 1 B are free" in line for line in yard.said)
    told: list[str] = []
    command.await_end(yard.client, text, pause=yard.pause, tell=told.append)
    assert told[0].startswith("0 of 1 partitions")


def test_a_throttle_can_be_kept(yard: Yard) -> None:
    yard.execute(plan((T0, [1, 2])), throttle=5)
    assert yard.verify(plan((T0, [1, 2])), preserve_throttles=True)
    assert yard.throttled()


def test_a_second_move_needs_additional_and_keeps_the_first_ones_throttle(yard: Yard) -> None:
    yard.execute(MOVE, throttle=1000)
    with pytest.raises(ReassignmentRefused, match="--additional"):
        yard.execute(plan((T1, [1, 2])))
    yard.execute(plan((T1, [1, 4])), additional=True, throttle=9)
    assert yard.cluster.configs["t"][settings.LEADERS] == "0:1,0:2,1:2,1:3"
    assert yard.cluster.configs["t"][settings.FOLLOWERS] == "0:3,0:4,1:1,1:4"
    assert yard.cluster.broker_config[1][settings.LEADER_RATE] == "9"


def test_a_start_that_fails_takes_its_throttle_back(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    yard.cluster.broker_config[1] = {settings.LEADER_RATE: "7"}

    def refuse(*_: object) -> None:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "not today")

    monkeypatch.setattr(yard.client, "alter_reassignments", refuse)
    with pytest.raises(ApiError, match="not today"):
        yard.execute(MOVE, throttle=1000)
    assert yard.cluster.broker_config[1] == {settings.LEADER_RATE: "7"}
    assert not any(yard.cluster.broker_config[b] for b in (2, 3, 4))
    assert yard.cluster.configs["t"] == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (plan((T0, [1, 9])), "Unknown broker id 9"),
        (plan((TopicPartition("none", 0), [1])), "Topic none not found"),
        (plan((TopicPartition("t", 7), [1])), "Unable to find partition: t-7"),
    ],
)
def test_what_is_not_there_is_refused_before_anything_is_written(yard: Yard, text: str, said: str) -> None:
    with pytest.raises((ReassignmentRefused, ApiError), match=said):
        yard.execute(text, throttle=1)
    assert not yard.throttled()


def test_cancel_goes_back_and_removes_the_throttle(yard: Yard) -> None:
    yard.execute(MOVE, throttle=1000)
    yard.cancel(MOVE)
    assert yard.said == [
        "Successfully cancelled partition reassignment for: t-0",
        "None of the specified partition moves are active.",
        "Clearing broker-level throttles on brokers 1,2,3,4",
        "Clearing topic-level throttles on topic t",
    ]
    assert not yard.throttled()
    assert not yard.client.list_reassignments()
    yard.cancel(MOVE)
    assert yard.said[0] == "None of the specified partition reassignments are active."


def test_an_addition_alone_is_cancelled_too(yard: Yard) -> None:
    """Kafka's tool left these running for a while (apache/kafka#20003)."""
    yard.execute(plan((T0, [1, 2, 3])))
    yard.cancel(plan((T0, [1, 2, 3])))
    assert yard.said[0] == "Successfully cancelled partition reassignment for: t-0"


def test_cancel_leaves_no_partition_without_a_leader(yard: Yard) -> None:
    yard.execute(MOVE)
    for broker in (1, 2):
        del yard.cluster.sessions[broker]
    with pytest.raises(ReassignmentRefused, match=r"former replicas 1,2 .* --force"):
        yard.cancel(MOVE)
    with pytest.raises(ReassignmentRefused, match=r"brokers 1,2 cannot be asked|broker"):
        yard.cancel(plan((T0, [1, 2])), force=True)
    assert not yard.client.list_reassignments()


def test_a_broker_that_is_away_does_not_keep_the_others_throttled(yard: Yard) -> None:
    yard.execute(plan((T0, [1, 3])), throttle=1000)
    while yard.client.list_reassignments():
        yard.pause.sleep(1)
    del yard.cluster.sessions[3]
    with pytest.raises(ReassignmentRefused, match="broker 3 cannot be asked"):
        yard.verify(plan((T0, [1, 3])))
    assert yard.cluster.broker_config == {1: {}, 2: {}, 3: dict.fromkeys(RATES, "1000"), 4: {}}


def test_directories_are_moved_once_their_replica_is_there(yard: Yard) -> None:
    text = plan((T0, [1, 3]), log_dirs=["any", "/b"])
    yard.execute(text, log_dir_throttle=5)
    assert yard.said[-1] == "Successfully started moving log directory to /b for replica t-0 with broker 3 "
    assert yard.cluster.broker_config[3] == {settings.LOG_DIR_RATE: "5"}
    yard.verify(text)
    assert yard.said[1] == "Reassignment of replica t-0-3 completed successfully."


def test_generate_places_all_anew_and_minimal_moves_what_must(yard: Yard) -> None:
    chance = random.Random(1)
    current, proposed = propose(yard.client, ["t"], [3, 4], chance=chance)
    assert current == {T0: (1, 2), T1: (2, 3)}
    assert {frozenset(replicas) for replicas in proposed.values()} == {frozenset({3, 4})}
    _, least = propose(yard.client, ["t"], [2, 3], minimal=True, chance=chance)
    assert set(least[T0]) == {2, 3}
    assert T1 not in least or set(least[T1]) == {2, 3}
    with pytest.raises(ApiError, match="Topic none not found"):
        propose(yard.client, ["none"], [1], chance=chance)
    with pytest.raises(ApiError, match="Replication factor: 2 larger than available brokers: 1"):
        propose(yard.client, ["t"], [1, 99], chance=chance)


def test_generate_has_the_partitions_that_one_broker_has_not_heard_of(yard: Yard) -> None:
    before = yard.client.snapshot(["t"]).topics["t"]
    yard.client.add_partitions("t", 3)
    yard.cluster.tick()
    yard.cluster.outdated = {"t": before}
    current, proposed = propose(yard.client, ["t"], [3, 4], chance=random.Random(1))
    assert len(current) == len(proposed) == 3


def test_a_broker_that_one_broker_does_not_know_is_not_away(yard: Yard) -> None:
    yard.cluster.unmet = {2}
    _, proposed = propose(yard.client, ["t"], [2, 3], minimal=True, chance=random.Random(1))
    assert {broker for replicas in proposed.values() for broker in replicas} == {2, 3}
    yard.execute(plan((T0, [2, 3])))
    assert yard.said[-1] == "Successfully started partition reassignment for t-0"
    yard.cluster.kill(2)
    yard.cluster.hung, yard.cluster.electing = {1}, False
    with pytest.raises(ApiError) as refusal:
        propose(yard.client, ["t"], [2, 3], minimal=True, chance=random.Random(1))
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER, "nobody can tell"


def test_a_broker_that_does_not_tell_its_bytes_does_not_end_a_proposal(yard: Yard) -> None:
    yard.cluster.hung = {4}
    _, proposed = propose(yard.client, ["t"], [2, 3], minimal=True, chance=random.Random(1))
    assert set(proposed[T0]) == {2, 3}


def test_racks_are_all_or_none() -> None:
    yard = Yard({1: "a", 2: "b", 3: "a", 4: None})
    chance = random.Random(1)
    with pytest.raises(BadReassignment, match="--disable-rack-aware"):
        propose(yard.client, ["t"], [1, 2, 3, 4], chance=chance)
    propose(yard.client, ["t"], [1, 2, 3, 4], rack_aware=False, chance=chance)
    _, proposed = propose(yard.client, ["t"], [1, 2, 3], chance=chance)
    assert all(2 in replicas for replicas in proposed.values())


def test_the_words_for_partitions() -> None:
    states = [
        MoveState(Move(TopicPartition("t", 10), (), (1,)), (1,)),
        MoveState(Move(TopicPartition("t", 9), (), (2, 3)), (1, 2)),
        MoveState(Move(TopicPartition("s", 0), (), (1,)), (), is_lost=True),
        MoveState(Move(TopicPartition("t", 1), (), (2,)), (1, 2), is_running=True),
    ]
    assert status.partition_text(states).split("\n") == [
        "Status of partition reassignment:",
        "There is no active reassignment of partition s-0, but replica set is  rather than 1.",
        "Reassignment of partition t-1 is still in progress.",
        "There is no active reassignment of partition t-9, but replica set is 1,2 rather than 2,3.",
        "Reassignment of partition t-10 is completed.",
    ]
    running = {T1: Assignment((1, 2, 3), (3,), (1,)), T0: Assignment((1, 2), (2,))}
    assert status.running_text(running).split("\n") == [
        "Current partition reassignments:",
        "t-0: replicas: 1,2. adding: 2.",
        "t-1: replicas: 1,2,3. adding: 3. removing: 1.",
    ]
    assert status.running_text({}) == "No partition reassignments found."


def test_the_words_for_directories() -> None:
    moves = {
        Replica("t", 0, 1): DirectoryMove("/b", "/b"),
        Replica("t", 0, 2): DirectoryMove("/b", "/a"),
        Replica("t", 0, 3): DirectoryMove("/b", "/a", "/b"),
        Replica("t", 0, 4): DirectoryMove("/b", "/a", "/c"),
        Replica("t", 0, 5): DirectoryMove("/b"),
        Replica("t", 0, 6): DirectoryMove("/b", broker_lives=False),
    }
    assert status.dir_text(moves).split("\n") == [
        "Reassignment of replica t-0-1 completed successfully.",
        "Partition t-0 on broker 2 is not being moved from log dir /a to /b.",
        "Reassignment of replica t-0-3 is still in progress.",
        "Partition t-0 on broker 4 is being moved to log dir /c instead of /b.",
        "Partition t-0 is not found in any live log dir on broker 5. "
        "There is likely an offline log directory on the broker.",
        "Partition t-0 cannot be found in any live log directory on broker 6.",
    ]
    assert [move.is_done for move in moves.values()] == [True, True, False, False, False, False]


def test_progress_counts_bytes_of_new_replicas() -> None:
    states = [MoveState(Move(T0, (), (3,)), (1, 2, 3), is_running=True), MoveState(Move(T1, (), (3,)), (3,))]
    sizes = [ReplicaSize(1, "/a", T0, 4_000_000), ReplicaSize(3, "/a", T0, 1_000_000)]
    found = copy_progress(states, {T0: Assignment((3, 1, 2), (3,), (1, 2))}, sizes)
    assert found == CopyProgress(2, 1, 4_000_000, 1_000_000)
    assert str(found) == "1 of 2 partitions are in place, 1.0 of 4.0 MB of the others are copied"


def test_a_partition_that_is_gone_has_no_replicas() -> None:
    snapshot = ClusterSnapshot("c", 1, {}, {}, reassignments={}, missing=(T0.topic,))
    move = Move(T0, (), (1,))
    assert move_states([move], snapshot) == [MoveState(move, (), is_running=False, is_lost=True)]


class TestAKilledRun:
    """One that set its throttle and was killed before its moves started."""

    @pytest.fixture
    def records(self, yard: Yard) -> MemoryRecords:
        yard.cluster.broker_config[1] = {settings.LEADER_RATE: "7"}
        records = MemoryRecords()
        book = ThrottleBook(yard.client, records, yard.pause, yard.cluster.live())
        book.hold("killed", [Move(T0, (1, 2), (3, 4))], 1000)
        return records

    def test_the_next_start_puts_back_what_was_before(self, yard: Yard, records: MemoryRecords) -> None:
        owner = throttle_owner("next", records)
        command.execute(yard.client, plan((T1, [1, 4])), owner=owner, pause=yard.pause, say=yard.said.append)
        assert yard.cluster.broker_config == {1: {settings.LEADER_RATE: "7"}, 2: {}, 3: {}, 4: {}}
        assert yard.cluster.configs["t"] == {}
        assert records.table == {}

    def test_its_throttle_stays_while_its_partitions_move(self, yard: Yard, records: MemoryRecords) -> None:
        yard.client.alter_reassignments({T0: (3, 4)})
        owner = throttle_owner("next", records)
        command.execute(
            yard.client, plan((T1, [1, 4])), additional=True, owner=owner, pause=yard.pause, say=yard.said.append
        )
        assert yard.cluster.broker_config[1][settings.LEADER_RATE] == "1000"
        assert "killed" in records.table

    def test_verify_removes_everything_as_kafkas_tool_does(self, yard: Yard, records: MemoryRecords) -> None:
        owner, said = throttle_owner("next", records), yard.said.append
        assert not command.verify(yard.client, MOVE, owner=owner, pause=yard.pause, say=said)
        assert not any(yard.cluster.broker_config.values())
        assert yard.cluster.configs["t"] == {}
        assert records.table == {}

    def test_preserved_throttles_are_not_touched(self, yard: Yard, records: MemoryRecords) -> None:
        owner, said = throttle_owner("next", records), yard.said.append
        command.verify(yard.client, MOVE, preserve_throttles=True, owner=owner, pause=yard.pause, say=said)
        assert yard.throttled()
        assert "killed" in records.table


def test_a_started_throttle_is_nobodys(yard: Yard) -> None:
    """Whoever verifies ends it, on whichever machine: a record here would only grow old."""
    records = MemoryRecords()
    owner = throttle_owner(records=records)
    command.execute(yard.client, MOVE, throttle=9, owner=owner, pause=yard.pause, say=yard.said.append)
    assert yard.throttled()
    assert records.table == {}


def test_a_throttle_does_not_take_away_what_others_throttle(yard: Yard) -> None:
    yard.cluster.configs["t"][settings.LEADERS] = "1:2"
    yard.execute(MOVE, throttle=9)
    assert yard.cluster.configs["t"][settings.LEADERS] == "1:2,0:1,0:2"


def test_a_disk_that_gets_too_full_is_a_warning_and_a_file_is_an_order(yard: Yard) -> None:
    yard.cluster.sizes = {T0: 1000}
    yard.cluster.disks = {(3, "/data/3"): (10_000, 999), (4, "/data/4"): (10_000, 9_000)}
    yard.execute(MOVE)
    assert [line for line in yard.said if line.startswith("Warning")] == [
        "Warning: broker 3: 1000 B come and 999 B are free: move less at once, or add disks or a broker"
    ]
    assert yard.cluster.assignments[T0].is_reassigning
