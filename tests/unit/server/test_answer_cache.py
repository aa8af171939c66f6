"""The cache of Metadata answers: what it may hold, whatever clients ask for."""

from typing import Any, cast

import pytest

from logyard.broker.server import answer_cache
from logyard.broker.server.answer_cache import AnswerCache
from logyard.broker.server.request import Request, Session

SEEN_AT = (1, 1)


def request(number: int) -> Request:
    body = memoryview(number.to_bytes(4, "big"))
    return Request(3, 9, number, "c", body, cast(Any, Session(1, "PLAINTEXT", "127.0.0.1")))


def test_large_answers_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may ask for the topics of a large cluster in 256 orders: each answer has megabytes."""
    monkeypatch.setattr(answer_cache, "BYTES_MAX", 1000)
    cache = AnswerCache()
    assert cache.get(request(0), SEEN_AT, None) is None
    for number in range(50):
        cache.put(request(number), SEEN_AT, None, bytes(300))
    kept = [number for number in range(50) if cache.get(request(number), SEEN_AT, None) is not None]
    assert kept == [47, 48, 49]


def test_the_same_answer_counts_once_and_a_huge_one_is_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_cache, "BYTES_MAX", 1000)
    cache = AnswerCache()
    assert cache.get(request(0), SEEN_AT, None) is None
    for _ in range(50):
        cache.put(request(1), SEEN_AT, None, bytes(300))
    cache.put(request(2), SEEN_AT, None, bytes(300))
    assert cache.get(request(1), SEEN_AT, None) is not None
    cache.put(request(3), SEEN_AT, None, bytes(5000))
    assert [cache.get(request(n), SEEN_AT, None) is not None for n in (1, 2, 3)] == [False, False, True]
    assert cache.get(request(3), (2, 1), None) is None
    cache.put(request(1), (2, 1), None, bytes(900))
    assert cache.get(request(1), (2, 1), None) is not None
