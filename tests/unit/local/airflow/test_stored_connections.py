import json
from pathlib import Path
from typing import Any

import pytest

from logyard.local.airflow.stored_connections import decide, digest, edited_ids, state_file, wanted_of


def test_what_is_missing_is_written_and_what_is_right_is_left() -> None:
    decision = decide({"a": "1", "b": "2"}, {"b": "2"}, {})
    assert (decision.write, decision.edited) == (("a",), ())
    assert decision.digests == {"a": ("1",), "b": ("2",)}


def test_what_we_wrote_follows_the_addresses() -> None:
    first = decide({"a": "1"}, {}, {})
    second = decide({"a": "2"}, {"a": "1"}, first.digests)
    assert (second.write, second.edited) == (("a",), ())
    third = decide({"a": "3"}, {"a": "2"}, second.digests)
    assert (third.write, third.digests) == (("a",), {"a": ("2", "3")})


@pytest.mark.parametrize("committed", [True, False])
def test_a_program_killed_at_its_commit_counts_nothing_as_edited(committed: bool) -> None:
    first = decide({"a": "1"}, {}, {})
    killed = decide({"a": "2"}, {"a": "1"}, first.digests)
    later = decide({"a": "3"}, {"a": "2" if committed else "1"}, killed.digests)
    assert (later.write, later.edited) == (("a",), ())


def test_attempts_that_fail_again_and_again_count_nothing_as_edited() -> None:
    known = decide({"a": "1"}, {}, {}).digests
    for wanted in ("2", "2", "2", "3", "4"):
        decision = decide({"a": wanted}, {"a": "1"}, known)  # the database keeps the first
        assert (decision.write, decision.edited) == (("a",), ())
        known = decision.digests


def test_what_was_edited_stays_through_every_start() -> None:
    known = decide({"a": "1"}, {}, {}).digests
    for wanted in ("1", "2", "3", "4"):
        decision = decide({"a": wanted}, {"a": "edited"}, known)
        assert (decision.write, decision.edited) == ((), ("a",))
        known = decision.digests
    assert decide({"a": "5"}, {}, known).write == ("a",)  # deleted: made anew


def test_a_connection_that_was_there_before_is_somebody_elses() -> None:
    assert decide({"a": "1"}, {"a": "theirs"}, {}).edited == ("a",)


def test_digests_differ_by_everything_but_the_form_of_the_extra() -> None:
    plain: dict[str, Any] = {"conn_type": "logyard", "host": "h:1", "extra": {"x": 1, "y": [2]}}
    assert digest(plain) == digest({**plain, "extra": '{"y": [2], "x": 1}', "login": "", "port": None})
    assert digest({"conn_type": "a"}) == digest({"conn_type": "a", "extra": None})
    others: list[dict[str, Any]] = [
        {},
        {"host": "h:2"},
        {"password": "p"},
        {"login": "l"},
        {"extra": {"x": 1}},
        {"extra": "no json"},
        {"port": 1},
    ]
    assert len({digest({**plain, **other}) for other in others}) == len(others)


def test_connections_come_from_the_environment(tmp_path: Path) -> None:
    found = wanted_of({"AIRFLOW_CONN_LOGYARD_DEFAULT": json.dumps({"host": "h"}), "AIRFLOW_HOME": "/x"})
    assert found == {"logyard_default": {"host": "h"}}
    assert edited_ids(tmp_path) == []
    state_file(tmp_path).write_text('{"edited": ["a"]}')
    assert edited_ids(tmp_path) == ["a"]
