"""The two lists of librdkafka's tests, and how the suite's source and report are read."""

import json
from pathlib import Path

from tests.librdkafka import run

SUITE_SIZE = 144  # of librdkafka 2.0.2


def test_every_test_is_in_one_list_and_those_left_out_have_a_reason() -> None:
    allowed, left_out = run.names_in(run.HERE / "allowed.txt"), run.names_in(run.HERE / "left-out.txt")
    assert allowed.keys().isdisjoint(left_out)
    assert len(allowed) + len(left_out) == SUITE_SIZE
    assert [name for name, reason in left_out.items() if len(reason) < 10] == []
    assert len(allowed) >= 85, "this list only grows"


def test_what_is_wrong_with_the_lists_is_named() -> None:
    wrong = run.unlisted(["0001_a", "0002_b"], {"0002_b": "", "0009_z": "gone"}, ["0001_a", "0002_b", "0003_c"])
    assert wrong == [
        "0002_b: in both lists",
        "0002_b: left out without a reason",
        "0003_c: neither in allowed.txt nor in left-out.txt",
        "0009_z: the suite has no such test",
    ]


def test_scenarios_are_read_off_the_suite_s_own_table(tmp_path: Path) -> None:
    (tmp_path / "test.c").write_text(
        "struct test tests[] = {\n _TEST(0001_a, 0),\n _TEST(0002_b, 0, TEST_BRKVER(0, 9, 0, 0),\n"
        '   .scenario = "noautocreate"),\n _TEST(0003_c, TEST_F_LOCAL, .scenario = "default,ak23"),\n {NULL}};\n'
    )
    assert run.scenarios_of(tmp_path) == {"0001_a": "default", "0002_b": "noautocreate", "0003_c": "default"}


def test_a_test_that_does_nothing_or_crashes_has_not_passed(tmp_path: Path) -> None:
    report = tmp_path / "report.json"

    def state(name: str) -> str:
        return run.judged(report, name, 0, 1.0).state

    assert state("0001_a") == "NO REPORT (exit 0)"
    tests = {"0001_a": {"state": "PASSED", "duration": 0.0}, "0002_b": {"state": "PASSED", "duration": 0.003}}
    report.write_text(json.dumps({"tests": tests}))
    assert (state("0001_a"), state("0002_b")) == ("DID NOTHING", "PASSED")


def test_words_choose_allowed_tests_and_names_any() -> None:
    known = ["0001_a", "0001_a_local", "0002_b"]
    assert run.chosen([], ["0001_a", "0002_b"], known) == ["0001_a", "0002_b"]
    assert run.chosen(["0001"], ["0001_a", "0002_b"], known) == ["0001_a"]
    assert run.chosen(["0001_a_local"], ["0001_a", "0002_b"], known) == ["0001_a_local"]


def test_apt_s_lists_are_asked_for_sources_too() -> None:
    stanzas = "Types: deb\nURIs: http://mirror/debian\nSuites: x\n\nTypes: deb\nURIs: http://other/repo\nSuites: y\n"
    assert run.with_sources(stanzas) == "Types: deb deb-src\nURIs: http://mirror/debian\nSuites: x\n"
    lines = "# main\ndeb [signed-by=k] http://mirror/debian x main\ndeb http://other/repo y main\n"
    assert run.with_sources(lines) == (
        "deb [signed-by=k] http://mirror/debian x main\ndeb-src [signed-by=k] http://mirror/debian x main\n"
    )
