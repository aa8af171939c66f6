"""ZooKeeperSession without a server: what it does when a session ends."""

import pytest

from logyard.broker.zk.session import ZooKeeperSession, ZooKeeperUnavailable


async def test_whatever_is_done_about_a_lost_session_the_next_one_is_opened() -> None:
    session = ZooKeeperSession("127.0.0.1:1")
    with pytest.raises(ZooKeeperUnavailable):
        await session.wait_connected(0.01)
    first = session.link
    assert first is not None
    session.connected(first, 7)

    def fails() -> None:
        raise RuntimeError("a part of the broker fails")

    session.on_session_lost = fails
    with pytest.raises(RuntimeError):
        session.session_ended(first)
    assert session.link is not first
    await session.close()
