"""A ZooKeeper that cannot be reached: the line says why, and what to check."""

import logging

import pytest

from logyard.broker.zk.access import ANYBODY
from logyard.broker.zk.kazoo_access import ConnectionLog, NoConnection, started_client
from logyard.local.ports import HOST


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (f"{HOST}:1", f"no ZooKeeper answers at {HOST}:1: connection refused; check that it runs, and its address"),
        # No resolver is asked for an interface that this machine has not.
        ("[fe80::1%nosuch]:2181", "; check its address"),
    ],
)
def test_the_line_says_what_to_check(address: str, said: str) -> None:
    with pytest.raises(NoConnection) as raised:
        started_client(address, ANYBODY, 0.5)
    assert str(raised.value).endswith(said)


def test_another_server_may_listen_there() -> None:
    log = ConnectionLog(logging.getLogger("logyard.test.silent"))
    log.warning("Connection time-out: %s", "socket time-out during read")
    assert log.reason(ANYBODY).endswith("; is this the port that it listens on for clients?")
