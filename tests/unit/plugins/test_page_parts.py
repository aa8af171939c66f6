"""Pure parts of the page's views: what a run was about, a row of its table, records as a file, a copy's form."""

import json
from pathlib import Path
from typing import Any

STATIC = Path(__file__).resolve().parents[3] / "plugins" / "logyard_ui" / "static"
UI = """globalThis.React = { createContext: () => null, memo: (f) => f }; globalThis.ReactRouterDOM = {};
globalThis.ChakraUI = {}; globalThis.document = { baseURI: 'http://page/' }"""
FORMS = f"const f = await import({json.dumps((STATIC / 'forms.js').as_uri())})"


def test_a_run_without_topics_is_about_all_of_them(pure: Any) -> None:
    asked = (
        "[{topics: ['a']}, {topics: ['b']}, {topics: []}, {}, null, {topic: 'a'}].map((conf) => m.concerns(conf, 'a'))"
    )
    assert pure("maintenance.js", asked, UI) == [True, False, True, True, True, True]


def test_rows_about_a_topic_are_those_of_its_partitions(pure: Any) -> None:
    asked = "['a', 'a-0', 'a-b-0', 'ab-0', 7, null].map((first) => m.isAbout([first], 'a'))"
    assert pure("outcome.js", asked, UI) == [True, True, False, False, False, False]


def test_records_are_saved_as_lines_of_json(pure: Any) -> None:
    hidden = {"kind": "hidden", "text": "", "size": 4}
    records: list[dict[str, Any]] = [
        {"partition": 0, "offset": 7, "key": None, "value": hidden},
        {"partition": 1, "offset": 8},
    ]
    text = pure("records.js", f"m.asLines({json.dumps({'topic': 't', 'records': records, 'masked': True})})", UI)
    assert text.endswith("\n")
    assert [json.loads(line) for line in text.splitlines()] == [{"topic": "t", **record} for record in records]


def test_a_copy_into_another_cluster_is_asked_for_where_there_is_one(pure: Any) -> None:
    asked = (
        "[{clusters: []}, {clusters: ['west']}, {clusters: ['west'], to_cluster: 'west'}].map((more) => {"
        " const spec = m.copyRecords, values = f.starting(spec, {topic: 't', to_topic: 't', ...more});"
        " const field = spec.fields.find((one) => one.id === 'to_cluster');"
        " return [field.when(values), f.optionsOf(field, values).length, spec.check(values) !== '',"
        " spec.conf(values).to_cluster ?? null, spec.say(values)[0]]; })"
    )
    told = "All records of every partition are copied from t to t"
    assert pure("record_actions.js", asked, FORMS) == [
        [False, 1, True, None, f"{told}."],
        [True, 2, True, None, f"{told}."],
        [True, 2, False, "west", f"{told} of cluster west."],
    ]


def test_one_value_is_no_plot(pure: Any) -> None:
    asked = "[[null, 7], [6, 7]].map((lag) => m.plots({series: {lag}}).map((one) => one.title))"
    assert pure("history_plots.js", asked) == [[], ["Lag"]]


def test_a_topic_is_emptied_up_to_the_ends_that_were_shown(pure: Any) -> None:
    policy = "[{name: 'cleanup.policy', value: 'compact,delete'}]"
    partitions = "[{partition: 0, end: 5}, {partition: 7, end: 4}]"
    topic = f"{{name: 't', records: 9, partitions: {partitions}, configs: {policy}}}"
    asked = (
        f"(() => {{ const {{values, problem}} = m.emptying({topic}); return [m.emptyTopic.conf(values), problem]; }})()"
    )
    assert pure("topic_actions.js", asked) == [{"topic": "t", "delete_records": {"0": 5, "7": 4}}, ""]
    others = (
        "configs: null",
        "configs: [{name: 'cleanup.policy', value: 'compact'}]",
        "records: 0",
        "partitions_total: 3",
        "partitions: [{partition: 0, end: null}]",
    )
    for other in others:
        assert pure("topic_actions.js", f"m.emptying({{...{topic}, {other}}}).problem"), other


def test_only_the_newest_records_are_followed(pure: Any) -> None:
    asked = (
        "[[{follow: '1', start: ''}, {follow: '1', start: 'newest'}, {follow: '1', start: 'offset'},"
        " {follow: '', start: 'newest'}].map(m.follows), [0, 502, 503, 403, 422].map((status) => m.passes({status}))]"
    )
    assert pure("records.js", asked, UI) == [[True, True, False, False], [True, True, True, False, False]]
