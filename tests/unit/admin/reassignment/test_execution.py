"""Plans, progress, adoption, waves and throttles."""

from dataclasses import replace

import pytest

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.reassignment.execution import look_at_moves
from logyard.admin.reassignment.plan import Move, Plan, StalePlan, explicit_moves, make_plan, refuse_stale
from logyard.admin.reassignment.progress import plan_progress
from logyard.admin.reassignment.throttles import settings
from logyard.admin.reassignment.throttles.book import ThrottleBook
from logyard.admin.reassignment.waves import MovesUnknown, adopt, held_back, next_wave
from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition
from tests.support.memory_clients import MemoryClient, MemoryPause
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_records import MemoryRecords

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster({1: None, 2: None, 3: None, 4: None})


@pytest.fixture
def client(cluster: MemoryCluster) -> MemoryClient:
    made = MemoryClient(cluster)
    made.create_topic(NewTopic("t", assignment={0: (1, 2), 1: (2, 3)}))
    made.snapshot()
    return made


def test_a_plan_document_survives_json_and_reads_as_kafkas(client: MemoryClient) -> None:
    snapshot = client.snapshot()
    plan = make_plan(snapshot, [Move(T0, (1, 2), (3, 2), 100)])
    document = plan.as_json(throttle=50)
    assert Plan.from_json(document) == plan
    assert document["bytes_in"] == {"3": 100}
    assert document["seconds_at_throttle"] == 2.0
    assert document["rollback"] == [{"topic": "t", "partition": 0, "replicas": [1, 2]}]
    theirs = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3,2],"log_dirs":["any","any"]}]}'
    assert explicit_moves(snapshot, Plan.from_json(theirs)) == [Move(T0, (1, 2), (3, 2))]


@pytest.mark.parametrize("text", ["[]", "{}", '{"partitions":[{"topic":"t"}]}', "nonsense"])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(CorruptData):
        Plan.from_json(text)


def test_moves_run_and_are_done_only_when_replicas_isr_and_list_agree(client: MemoryClient) -> None:
    moves = [Move(T0, (1, 2), (3, 2))]
    before = client.snapshot(reassignments=True)
    assert plan_progress(moves, before).running == (T0,)
    client.alter_reassignments({T0: (3, 2)})
    assert adopt(moves, client.snapshot(reassignments=True)).under_way == tuple(moves)
    looks = [plan_progress(moves, client.snapshot(reassignments=True)).done for _ in range(4)]
    assert looks[-1] == (T0,)
    assert client.snapshot().partition(T0).replicas == (3, 2)  # type: ignore[union-attr]


def test_without_a_controller_nothing_is_taken_for_free_to_start(client: MemoryClient) -> None:
    with pytest.raises(MovesUnknown):
        adopt([Move(T0, (1, 2), (3, 2))], client.snapshot(reassignments=False))


def test_without_a_controller_nothing_counts_as_done(client: MemoryClient) -> None:
    done = [Move(T0, (3, 4), (1, 2))]
    assert plan_progress(done, client.snapshot(reassignments=True)).done == (T0,)
    assert plan_progress(done, client.snapshot(reassignments=False)).done == ()


def test_a_vanished_topic_and_a_dead_target_are_told_apart(client: MemoryClient) -> None:
    moves = [Move(TopicPartition("gone", 0), (1,), (2,)), Move(T0, (1, 2), (9, 2))]
    state = plan_progress(moves, look_at_moves(client, moves))
    assert state.lost == (TopicPartition("gone", 0),)
    assert state.stuck == state.running == (T0,)


def test_a_topic_that_one_broker_does_not_know_is_not_lost(cluster: MemoryCluster, client: MemoryClient) -> None:
    """It has just started, or the controller's news reach it late."""
    cluster.unheard = {"t"}
    moves = [Move(T0, (1, 2), (3, 2))]
    state = plan_progress(moves, client.snapshot(reassignments=True))
    assert (state.lost, state.running) == ((), (T0,))
    assert adopt(moves, look_at_moves(client, moves)).to_start == tuple(moves)


def test_a_partition_whose_move_runs_is_not_lost(client: MemoryClient) -> None:
    client.alter_reassignments({T0: (3, 2)})
    snapshot = client.snapshot(reassignments=True)
    behind = replace(snapshot, topics={}, missing=("t",))
    assert plan_progress([Move(T0, (1, 2), (3, 2))], behind).lost == ()


def test_what_nobody_can_tell_is_not_lost(cluster: MemoryCluster, client: MemoryClient) -> None:
    assert cluster.controller is not None
    cluster.hung.add(cluster.controller)
    moves = [Move(TopicPartition("gone", 0), (1,), (2,))]
    with pytest.raises(MovesUnknown):
        look_at_moves(client, moves)


def test_foreign_moves_are_seen(client: MemoryClient) -> None:
    client.alter_reassignments({T1: (4, 3)})
    snapshot = client.snapshot(reassignments=True)
    assert adopt([Move(T0, (1, 2), (3, 2))], snapshot).foreign == (T1,)
    assert adopt([Move(T1, (2, 3), (1, 3))], snapshot).foreign == (T1,)
    assert adopt([Move(T1, (2, 3), (4, 3))], snapshot).foreign == ()


def test_waves_respect_what_is_under_way(client: MemoryClient) -> None:
    snapshot = client.snapshot(reassignments=True)
    moves = [Move(TopicPartition("t", n), (1, 2), (3, 2)) for n in range(4)]
    assert len(next_wave(moves, [], snapshot, limit=2)) == 2
    assert next_wave(moves, moves[:2], snapshot, limit=2) == []
    assert len(next_wave(moves, moves[:1], snapshot, limit=2)) == 1


STALE = "plan again"


@pytest.mark.parametrize(
    ("moves", "why"),
    [
        ([Move(T0, (1, 2), (3, 2))], None),
        ([Move(T0, (2, 1), (3, 2))], None),  # another order of the same: a move was cancelled meanwhile
        ([Move(T0, (4, 3), (1, 2))], None),  # it is where the plan wants it
        ([Move(T0, (), (3, 2))], None),  # written by hand
        ([Move(TopicPartition("gone", 0), (1, 2), (3, 2))], None),  # dropped alone
        ([Move(T0, (1, 3), (3, 2))], STALE),
        ([Move(T0, (4, 3), (1, 2)), Move(T1, (1, 2), (3, 4))], STALE),  # one that is there already excuses no other
    ],
)
def test_a_plan_is_stale_where_one_partition_is_elsewhere(
    client: MemoryClient, moves: list[Move], why: str | None
) -> None:
    snapshot = client.snapshot(reassignments=True)
    plan = make_plan(snapshot, moves)
    if why is None:
        refuse_stale(plan, snapshot)
        return
    with pytest.raises(StalePlan, match=why):
        refuse_stale(plan, snapshot)


def test_a_plan_is_not_judged_where_nobody_says_what_moves(client: MemoryClient) -> None:
    snapshot = client.snapshot()
    with pytest.raises(StalePlan, match="no controller"):
        refuse_stale(make_plan(snapshot, []), snapshot)
    with pytest.raises(StalePlan, match="is for cluster other"):
        refuse_stale(Plan("other", ()), client.snapshot(reassignments=True))


def test_moves_to_a_broker_that_is_away_are_held_back(client: MemoryClient) -> None:
    snapshot = client.snapshot(reassignments=True)
    moves = [Move(T0, (1, 2), (9, 2)), Move(T1, (2, 3), (4, 3))]
    assert next_wave(moves, [], snapshot) == moves[1:]
    assert held_back(moves, snapshot) == moves[:1]


def book(client: MemoryClient, pause: MemoryPause | None = None) -> ThrottleBook:
    return ThrottleBook(client, MemoryRecords(), pause or MemoryPause(MemoryCluster({1: None})))


def test_throttles_are_set_and_put_back_as_they_were(client: MemoryClient) -> None:
    client.alter_broker_configs(1, {settings.LEADER_RATE: "77"})
    client.alter_topic_configs("t", {settings.LEADERS: "5:5"})
    before_brokers = {b: dict(client.broker_configs(b)) for b in (1, 2, 3, 4)}
    before_topic = client.topic_configs("t")
    kept = book(client)
    kept.hold("me", [Move(T0, (1, 2), (3, 2))], 1000)
    assert client.broker_configs(3)[settings.FOLLOWER_RATE].value == "1000"
    assert client.topic_configs("t")[settings.LEADERS].value == "5:5,0:1,0:2"
    assert client.topic_configs("t")[settings.FOLLOWERS].value == "0:3"
    kept.release("me")
    assert {b: dict(client.broker_configs(b)) for b in (1, 2, 3, 4)} == before_brokers
    assert client.topic_configs("t") == before_topic


def test_throttles_of_a_vanished_topic_are_left_out(client: MemoryClient) -> None:
    kept = book(client)
    kept.hold("me", [Move(T0, (1, 2), (3, 2))], 1000)
    client.delete_topic("t")
    kept.release("me")
    assert client.broker_configs(3) == {}


def test_a_throttle_is_set_when_every_broker_knows_it(client: MemoryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    pause, answered = MemoryPause(MemoryCluster({1: None})), client.broker_configs
    # Broker 3 hears of its rate a while after it was written.
    monkeypatch.setattr(client, "broker_configs", lambda b: {} if b == 3 and pause.monotonic() < 0.5 else answered(b))
    start = pause.monotonic()
    book(client, pause).hold("me", [Move(T0, (1, 2), (3, 2))], 1000)
    assert 0.5 <= pause.monotonic() - start < 1


def test_a_broker_that_never_tells_its_throttle_holds_a_move_up_for_a_moment_only(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = MemoryPause(MemoryCluster({1: None}))
    monkeypatch.setattr(client, "broker_configs", lambda _: {})
    book(client, pause).hold("me", [Move(T0, (1, 2), (3, 2))], 1000)
    assert 5 <= pause.monotonic() < 6
