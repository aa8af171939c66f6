"""Which broker is asked about users."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from logyard.admin.users import requests
from logyard.admin.users.users import NewPassword
from logyard.broker.errors import ErrorCode


class Sender:
    """A cluster whose first controller has just lost its office."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

    def ask(self, make: Callable[[], Any], node: int | None = None) -> Any:
        raise AssertionError("only the controller alters users")

    def ask_controller(self, make: Callable[[], Any], codes: Callable[[Any], Sequence[int]]) -> Any:
        while True:
            self.asked.append(("controller", make()))
            one = SimpleNamespace(user="alice", error_code=int(self._codes.pop(0)), error_message=None)
            response = SimpleNamespace(results=[one])
            if ErrorCode.NOT_CONTROLLER not in codes(response):
                return response


def test_the_controller_is_asked_until_it_answers() -> None:
    sender = Sender()
    password = NewPassword("alice", "SCRAM-SHA-256", "secret", 4096)
    assert requests.alter(sender, [password], {}) == {"alice": None}
    assert len(sender.asked) == 2
