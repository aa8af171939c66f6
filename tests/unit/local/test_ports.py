import random
import socket
from pathlib import Path

import pytest

from logyard.local import ports
from logyard.local.errors import LocalError
from logyard.local.ports import Ports


def test_a_name_keeps_its_port_across_restarts(tmp_path: Path) -> None:
    first = Ports(tmp_path).choose("broker-0")
    assert Ports(tmp_path).choose("broker-0") == first
    assert ports.LOWEST <= first < ports.HIGHEST


def test_names_do_not_share_a_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter([20_000, 20_000, 20_001])
    monkeypatch.setattr(random, "randrange", lambda low, high: next(draws))
    monkeypatch.setattr(ports, "is_free", lambda port: True)
    book = Ports(tmp_path)
    assert (book.choose("a"), book.choose("b")) == (20_000, 20_001)


def test_a_lost_race_picks_another_port_and_keeps_it(tmp_path: Path) -> None:
    book = Ports(tmp_path)
    first = book.choose("a")
    second = book.again("a")
    assert second != first
    assert book.choose("a") == second


def test_a_wanted_port_is_recorded(tmp_path: Path) -> None:
    assert Ports(tmp_path).choose("a", 19_092) == 19_092
    assert Ports(tmp_path).choose("a") == 19_092


def test_a_port_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
        assert ports.answers(port)
    assert not ports.answers(port)


def test_no_free_port_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(LocalError, match="no free port"):
        Ports(tmp_path).choose("a")
