"""Features as words and lines: those of kafka-features."""

import pytest

from logyard.admin.cluster.features import BadFeatures, Feature, Features, description, outcome, parse
from logyard.broker.errors import ApiError, ErrorCode

REFUSED = ApiError(ErrorCode.INVALID_REQUEST, "Because.")


def test_levels_are_read() -> None:
    assert parse(["transaction.version=2", " other = 0 "]) == {"transaction.version": 2, "other": 0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --feature"),
        (["transaction.version"], "give name=level"),
        (["=2"], "give name=level"),
        (["a=x"], "a number from 0 to 32767"),
        (["a=-1"], "a number from 0 to 32767"),
        (["a=32768"], "a number from 0 to 32767"),
        (["a=1", "a=2"], "more than once"),
    ],
)
def test_what_cannot_be_read(words: list[str], said: str) -> None:
    with pytest.raises(BadFeatures, match=said):
        parse(words)


def test_a_description_has_a_line_for_each() -> None:
    found = Features((Feature("b", 0, 7, 0), Feature("a", 1, 2, 2)), 5)
    assert description(found) == [
        "Feature: a\tSupportedMinVersion: 1\tSupportedMaxVersion: 2\tFinalizedVersionLevel: 2\tEpoch: 5",
        "Feature: b\tSupportedMinVersion: 0\tSupportedMaxVersion: 7\tFinalizedVersionLevel: 0\tEpoch: 5",
    ]
    assert description(Features((Feature("a", 1, 2, 0),), None))[0].endswith("Epoch: -")


@pytest.mark.parametrize(
    ("verb", "dry_run", "done", "refused"),
    [
        ("upgrade", False, "a was upgraded to 2.", "Could not upgrade b to 1. Because."),
        ("upgrade", True, "a can be upgraded to 2.", "Can not upgrade b to 1. Because."),
        ("downgrade", False, "a was downgraded to 2.", "Could not downgrade b to 1. Because."),
    ],
)
def test_what_came_of_it(verb: str, dry_run: bool, done: str, refused: str) -> None:
    problems = {"b": REFUSED, "a": None}
    assert outcome(verb, {"a": 2, "b": 1}, problems, dry_run=dry_run) == [done, refused]
