"""A log-in that ZooKeeper refuses: who waits for the client is told at once, whatever kazoo has gone on to."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.protocol.states import KeeperState

from logyard.broker.zk import kazoo_access
from logyard.broker.zk.access import Access, Login


@pytest.mark.parametrize("state", [KeeperState.AUTH_FAILED, KeeperState.CLOSED])
def test_it_is_told_before_the_time_is_over(monkeypatch: pytest.MonkeyPatch, state: Any) -> None:
    """kazoo is connected before it logs in, and closed at once when that is refused."""
    ended: list[str] = []

    def client(**_: Any) -> SimpleNamespace:
        return SimpleNamespace(
            client_state=state,
            _connection=SimpleNamespace(),
            start=lambda timeout: None,
            stop=lambda: ended.append("stopped"),
            close=lambda: ended.append("closed"),
        )

    monkeypatch.setattr(kazoo_access, "KazooClient", client)
    begun = time.monotonic()
    with pytest.raises(kazoo_access.NoConnection, match="refuses"):
        kazoo_access.started_client("z:2181", Access(login=Login("broker", "wrong")), 60)
    assert time.monotonic() - begun < 30
    assert ended == ["stopped", "closed"]
