"""Replays the corpus of `make fuzz`: what was found once is not found again."""

import pytest

from tests.fuzz import corpora
from tests.fuzz.targets import TARGETS


def replay(target: str) -> None:
    for each in corpora.read(target):
        TARGETS[target](each)


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_is_taken(target: str) -> None:
    assert corpora.read(target), f"tests/fuzz/corpus has nothing for {target}: make fuzz writes it"
    replay(target)


def test_every_corpus_has_a_target() -> None:
    assert {path.stem for path in corpora.CORPUS.iterdir()} == TARGETS.keys()


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that lets in whoever gives a user's name: the corpus of PLAIN tells it."""
    monkeypatch.setattr("hmac.compare_digest", lambda *_: True)
    with pytest.raises(AssertionError):
        replay("plain")
