"""Creating an object of which exactly one writer may be the author, although answers get lost.

Rule 1: the object carries a write id. Whenever the answer does not prove that the store wrote it now, it is read back:
        with this id the create succeeded, with another it lost, and if there is none, it is tried again.
Rule 2: "it exists" proves nothing: it may be our own, from a request whose answer was lost or that was repeated on the
        way, and S3 also answers so when two creates meet and neither has won yet.
Rule 3: who gives up removes nothing. A request that is still on its way may succeed later, and then the version holds.
"""

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from logyard.spark_jobs.objects.store import StoreFailed, Unclear

# Pauses before further attempts, in seconds.
PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
PROBES = "_probe"
_ATTEMPTS = 3


class Conditional(Protocol):
    """What is needed of a store; the methods are those of `ObjectStore`."""

    @property
    def url(self) -> str: ...

    def create(self, key: str, content: bytes) -> bool: ...

    def read_once(self, key: str) -> bytes | None: ...


class Undecided(StoreFailed):
    """The store did not tell, for a minute, who wrote an object; the write may still succeed."""


class BrokenPromise(StoreFailed):
    """A store lets more than one writer create the same object."""


def create_once(
    store: Conditional,
    key: str,
    content: bytes,
    is_ours: Callable[[bytes], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Create an object; returns whether it is ours, False if it is another's. Raises Undecided, StoreFailed.

    :param is_ours: whether an object that was read has our write id.
    """
    said = "it is neither there nor created"
    for pause in (*PAUSES_S, 0.0):
        try:
            if store.create(key, content):
                return True
        except Unclear as error:
            said = str(error)
        try:
            there = store.read_once(key)
            if there is not None:
                return is_ours(there)
        except Unclear as error:
            said = str(error)
        sleep(pause)
    raise Undecided(f"{store.url}/{key}: the store does not tell whether it was written: {said}; run it again")


def check_promise(store: Conditional, sleep: Callable[[float], None] = time.sleep) -> str:
    """Check that of two creates of one key one succeeds, at the same time and one after the other; returns the key of
    the object that was made. Raises BrokenPromise, StoreFailed.

    An attempt whose answers were lost proves nothing, and is repeated with another key.
    """
    said: Exception | None = None
    for attempt in range(_ATTEMPTS):
        key = f"{PROBES}/{uuid.uuid4().hex}"
        try:
            _race(store, key)
            return key
        except Unclear as error:
            said = error
            sleep(PAUSES_S[attempt])
    raise StoreFailed(f"{said}")


def _race(store: Conditional, key: str) -> None:
    contents = [b"first", b"second", b"third"]
    with ThreadPoolExecutor(2) as pool:
        won = list(pool.map(lambda content: store.create(key, content), contents[:2]))
    won.append(store.create(key, contents[2]))
    there = store.read_once(key)
    winners = [content for content, one in zip(contents, won, strict=True) if one]
    if len(winners) == 1 and there is None:
        # It comes later, or another cache has answered: that says nothing of how many writers it would have.
        raise Unclear(f"{store.url}: {key} was created, and cannot be read")
    if len(winners) > 1 or (winners and there != winners[0]):
        raise BrokenPromise(
            f"{store.url}: this store lets two writers create one object (it ignores If-None-Match), so two exports"
            " could commit the same version: export elsewhere"
        )
    if not winners:
        raise Unclear(f"{store.url}: of three creates of {key} none succeeded")
