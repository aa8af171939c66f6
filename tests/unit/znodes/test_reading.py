"""Reading many znodes of which some are refused."""

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import LogyardError
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes.ops import Create, SessionExpired
from logyard.broker.znodes.reading import read_each
from tests.support.guarded_zookeeper import GuardedZooKeeper

PATHS = [f"/{number}" for number in range(8)]


async def guarded(*refused: str) -> GuardedZooKeeper:
    zk = GuardedZooKeeper(ZooKeeperTree(ManualClock()), *refused)
    await zk.multi([Create(path, path.encode()) for path in PATHS if path != "/5"])
    return zk


@pytest.mark.parametrize("refused", [[], ["/3"], ["/0", "/7"], PATHS])
async def test_who_is_refused_costs_no_other(refused: list[str]) -> None:
    zk = await guarded(*refused)
    for path, found in zip(PATHS, await read_each(zk, PATHS), strict=True):
        if path in refused:
            assert isinstance(found, LogyardError)
            assert path in str(found)
        elif path == "/5":
            assert found is None
        else:
            assert found is not None
            assert not isinstance(found, LogyardError)
            assert found.data == path.encode()


async def test_it_is_one_read_where_nothing_is_refused_and_few_where_one_is() -> None:
    zk = await guarded()
    await read_each(zk, PATHS)
    assert zk.reads == 1
    zk.refused.add("/3")
    await read_each(zk, PATHS)
    assert zk.reads == 1 + 7
    assert await read_each(zk, []) == []


async def test_the_end_of_the_session_is_no_znodes_fault() -> None:
    zk = await guarded()
    zk.tree.expire(zk.session_id)
    with pytest.raises(SessionExpired):
        await read_each(zk, PATHS)
