"""A replica's directory that somebody has removed under a running broker."""

from logyard.broker.log import layout
from logyard.broker.model import TopicPartition
from tests.support.logs import content, names
from tests.support.moving_logs import A0, CONFIG, ONE, TWO, House, copied, settled, state, write


async def test_its_replica_is_deleted_and_made_again() -> None:
    """FileNotFoundError went through StopReplica, and the other replicas of that request stayed."""
    house = House()
    store, _ = await house.filled()
    house.disk.remove_tree(f"{ONE}/{A0}")
    store.logs.delete(A0)
    assert store.logs.get(A0) is None
    assert house.notes[-1:] == [f"{ONE}/{A0}: is gone already: somebody has removed it"]
    again = store.logs.get_or_create(A0, None, CONFIG, is_new=True, directory=ONE)
    assert (again.log_end_offset, again.failure) == (0, None)
    await settled(store)
    assert store.online_directories == (ONE, TWO)
    other = store.logs.get_or_create(TopicPartition("other", 0), None, CONFIG, is_new=True)
    assert other.directory == f"{TWO}/other-0", "the first directory has one replica, not none"
    await store.abandon()


async def test_a_move_out_of_it_is_completed() -> None:
    house = House()
    store, log = await house.filled()
    before = state(log)
    await copied(store)
    house.disk.remove_tree(f"{ONE}/{A0}")
    new = store.promote(A0)
    assert new.directory == f"{TWO}/{A0}"
    assert state(new) == before
    await settled(store)
    assert str(A0) not in names(house.disk, ONE)
    await store.abandon()


async def test_the_other_logs_are_closed_with_their_checkpoints() -> None:
    house = House()
    store, _ = await house.filled()
    other = store.logs.get_or_create(TopicPartition("other", 0), None, CONFIG, is_new=True, directory=ONE)
    for number in range(12):
        write(other, number)
    other.set_high_watermark(other.log_end_offset)
    end, whole = other.log_end_offset, content(other)
    house.disk.remove_tree(f"{ONE}/{A0}")
    await store.close()
    assert layout.CLEAN_SHUTDOWN not in names(house.disk, ONE)
    notes = list(house.notes)
    again = await house.start()
    kept = again.logs.get(other.tp)
    assert kept is not None
    assert (kept.recovery_point, kept.high_watermark, content(kept)) == (end, end, whole)
    assert [note for note in notes if note.startswith(f"{ONE}/{A0}: not closed cleanly")]
    await again.abandon()
