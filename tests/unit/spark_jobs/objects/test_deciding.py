"""Who wrote an object: whatever happens to requests and answers, of all writers one believes that it is the author."""

import itertools
import random
import threading
from collections.abc import Callable

import pytest

from logyard.spark_jobs.objects import deciding
from logyard.spark_jobs.objects.deciding import BrokenPromise, Undecided, check_promise, create_once
from logyard.spark_jobs.objects.store import StoreFailed, Unclear

KEY = "_manifest/0000000007.json"


def no_wait(_: float) -> None:
    pass


class World:
    """One key of a store. `faults` says how each request ends: "" (well), "unsent", "lost", "busy" (S3's 409: taken,
    and yet nobody has won) or "late" (no answer, and the store acts two requests later)."""

    url = "s3://bucket/x"

    def __init__(self, faults: list[str]) -> None:
        self.faults, self.there, self.late = list(faults), list[bytes](), list[tuple[int, bytes]]()

    def _fault(self) -> str:
        for left, content in list(self.late):
            self.late.remove((left, content))
            if left == 0:
                self._write(content)
            else:
                self.late.append((left - 1, content))
        return self.faults.pop(0) if self.faults else ""

    def _write(self, content: bytes) -> bool:
        if not self.there:
            self.there.append(content)
            return True
        return False

    def create(self, _: str, content: bytes) -> bool:
        fault = self._fault()
        if fault == "busy":
            return False
        if fault == "late":
            self.late.append((1, content))
        done = self._write(content) if fault in ("", "lost") else False
        if fault:
            raise Unclear(fault)
        return done

    def read_once(self, _: str) -> bytes | None:
        if self._fault():
            raise Unclear("time-out")
        return self.there[0] if self.there else None

    def settle(self) -> None:
        while self.late:
            self._fault()


def test_one_writer_is_the_author_whatever_is_lost() -> None:
    for faults in itertools.product(["", "unsent", "lost", "busy", "late"], repeat=4):
        world = World(list(faults))
        assert create_once(world, KEY, b"mine", lambda there: there == b"mine", no_wait), faults
        world.settle()
        assert world.there == [b"mine"], faults


@pytest.mark.parametrize("seed", range(50))
def test_of_two_writers_one_believes_that_it_won(seed: int) -> None:
    dice = random.Random(seed)
    world = World([dice.choice(["", "", "unsent", "lost", "busy", "late"]) for _ in range(8)])
    turn, believed = threading.Lock(), dict[bytes, bool]()

    class InTurns:
        url = world.url

        def create(self, key: str, content: bytes) -> bool:
            with turn:
                return world.create(key, content)

        def read_once(self, key: str) -> bytes | None:
            with turn:
                return world.read_once(key)

    def write(content: bytes) -> None:
        believed[content] = create_once(InTurns(), KEY, content, lambda there: there == content, no_wait)

    writers = [threading.Thread(target=write, args=(content,)) for content in (b"a", b"b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(10)
    world.settle()
    assert believed == {b"a": world.there == [b"a"], b"b": world.there == [b"b"]}


def test_a_store_that_never_answers_is_told_in_one_line() -> None:
    waits: list[float] = []
    with pytest.raises(Undecided, match=r"s3://bucket/x/_manifest/0000000007.json: .* time-out; run it again"):
        create_once(World(["lost"] * 99), KEY, b"mine", lambda there: there == b"mine", waits.append)
    assert 30 < sum(waits) < 90


def test_a_refusal_is_not_repeated() -> None:
    class Closed(World):
        def create(self, _: str, content: bytes) -> bool:
            raise StoreFailed("403")

        def read_once(self, _: str) -> bytes | None:
            raise AssertionError

    with pytest.raises(StoreFailed, match="403"):
        create_once(Closed([]), KEY, b"mine", bool, no_wait)


# --- the probe


class Keyed:
    """A store of several keys."""

    url = "s3://bucket/x"

    def __init__(self, write: Callable[[dict[str, bytes], str, bytes], bool]) -> None:
        self.objects: dict[str, bytes] = {}
        self._do, self._turn = write, threading.Lock()

    def create(self, key: str, content: bytes) -> bool:
        with self._turn:
            return self._do(self.objects, key, content)

    def read_once(self, key: str) -> bytes | None:
        return self.objects.get(key)


def keeping(objects: dict[str, bytes], key: str, content: bytes) -> bool:
    return objects.setdefault(key, content) is content


def ignoring(objects: dict[str, bytes], key: str, content: bytes) -> bool:
    objects[key] = content
    return True


def lying(objects: dict[str, bytes], key: str, content: bytes) -> bool:
    """Says that the second create failed, and wrote it."""
    first = key not in objects
    objects[key] = content
    return first


def test_a_store_that_keeps_its_word_passes() -> None:
    store = Keyed(keeping)
    assert check_promise(store, no_wait) in store.objects


@pytest.mark.parametrize("broken", [ignoring, lying])
def test_a_store_that_breaks_its_word_is_refused_by_name(broken: Callable[..., bool]) -> None:
    with pytest.raises(BrokenPromise, match=r"s3://bucket/x: this store lets two writers create .*elsewhere"):
        check_promise(Keyed(broken), no_wait)


class Later(Keyed):
    """A store whose first few objects cannot be read right after they were created."""

    late = 2

    def read_once(self, key: str) -> bytes | None:
        self.late -= 1
        return super().read_once(key) if self.late < 0 else None


def test_a_store_that_shows_an_object_later_is_not_accused() -> None:
    assert check_promise(Later(keeping), no_wait)
    never = Later(keeping)
    never.late = 100
    with pytest.raises(StoreFailed, match="was created, and cannot be read") as told:
        check_promise(never, no_wait)
    assert not isinstance(told.value, BrokenPromise)


def test_lost_answers_of_the_probe_prove_nothing() -> None:
    lost = iter([True, False, False] + [False] * 9)

    def losing(objects: dict[str, bytes], key: str, content: bytes) -> bool:
        won = keeping(objects, key, content)
        if next(lost):
            raise Unclear("time-out")
        return won

    assert check_promise(Keyed(losing), no_wait)


def test_a_probe_that_is_never_answered_ends() -> None:
    def silent(*_: object) -> bool:
        raise Unclear("s3://bucket/x: time-out")

    with pytest.raises(StoreFailed, match="time-out"):
        check_promise(Keyed(silent), no_wait)
    assert deciding.PAUSES_S[0] > 0
