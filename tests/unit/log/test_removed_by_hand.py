"""A replica's directory that somebody has removed under a running broker."""

from logyard.broker.model import TopicPartition
from tests.support.logs import names
from tests.support.moving_logs import A0, CONFIG, ONE, TWO, House, copied, settled, state


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
