"""An object store in memory, with a clock of its own, that can die, forget to answer or stop at any request.

`store.at(n, act)` has `act` called at request number n: `kill_before`, `kill_after`, `lose_answer`, `never_arrive`, or
a function of the test, which is called before the request.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any, BinaryIO, TypeVar

from logyard.spark_jobs.objects.store import Found, Unclear

Answer = TypeVar("Answer")
URL = "s3://bucket/export"


class KilledRun(BaseException):
    """The process dies here."""


class MemoryObjects:
    """The methods of `ObjectStore`."""

    def __init__(self) -> None:
        self.url = URL
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.kept: set[str] = set()  # keys that `delete_each` may not delete
        self.now = datetime(2026, 1, 1, tzinfo=timezone.utc)
        self.requests = 0
        self._turn = threading.Lock()
        self._act: tuple[int, Callable[..., Any]] | None = None

    def at(self, request: int, act: Callable[..., Any]) -> None:
        """Count requests from 0 again, and act at this one."""
        self.requests, self._act = 0, (request, act)

    def quiet(self) -> None:
        """Answer every request from now on."""
        self._act = None

    def pass_time(self, by: timedelta) -> None:
        self.now += by

    # --- the store's methods -----------------------------------------------------------------------------------------

    def put(self, key: str, content: bytes | BinaryIO) -> None:
        whole = content if isinstance(content, bytes) else content.read()
        self._data(lambda: self._write(key, whole))

    def get(self, key: str) -> bytes:
        return self._data(lambda: self._there(key)[0])

    def head(self, key: str) -> Found:
        def found() -> Found:
            content, modified = self._there(key)
            return Found(key, len(content), modified)

        return self._data(found)

    def list(self, prefix: str, after: str = "") -> Iterator[Found]:
        def found() -> list[Found]:
            keys = sorted(key for key in self.objects if key.startswith(f"{prefix}/") and key > after)
            return [Found(key, len(self.objects[key][0]), self.objects[key][1]) for key in keys]

        return iter(self._data(found))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._data(partial(self.objects.pop, key, None))

    def delete_each(self, keys: Iterable[str]) -> dict[str, str]:
        named = list(keys)
        self.delete([key for key in named if key not in self.kept])
        return {key: "403" for key in named if key in self.kept}

    def create(self, key: str, content: bytes) -> bool:
        def create() -> bool:
            with self._turn:
                if key in self.objects:
                    return False
                self._write(key, content)
                return True

        return self._request(create)

    def read_once(self, key: str) -> bytes | None:
        return self._request(lambda: self.objects[key][0] if key in self.objects else None)

    # --- how requests end --------------------------------------------------------------------------------------------

    def _write(self, key: str, content: bytes) -> None:
        self.now += timedelta(milliseconds=1)
        self.objects[key] = (content, self.now)

    def _there(self, key: str) -> tuple[bytes, datetime]:
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key]

    def _data(self, act: Callable[[], Answer]) -> Answer:
        """The library repeats requests for data until one is answered."""
        try:
            return self._request(act)
        except Unclear:
            return act()

    def _request(self, act: Callable[[], Answer]) -> Answer:
        number, self.requests = self.requests, self.requests + 1
        if self._act is None or self._act[0] != number:
            return act()
        how = self._act[1]
        if how in (kill_before, never_arrive):
            how()
        if how in (kill_after, lose_answer):
            act()
            how()
        how()
        return act()


def kill_before() -> None:
    raise KilledRun


def kill_after() -> None:
    raise KilledRun


def never_arrive() -> None:
    raise Unclear("connection reset")


def lose_answer() -> None:
    raise Unclear("time-out")
