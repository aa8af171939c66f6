"""The view's files: they fit together, set no HTML, take nothing from elsewhere, and say what the DAGs take."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from logyard.admin.acls import acls
from logyard.admin.configs.secrets import secret_names
from logyard.broker.config.keys import KEYS

STATIC = Path(__file__).resolve().parents[3] / "plugins" / "logyard_ui" / "static"
FILES = sorted(STATIC.glob("*.js"))
IMPORT = re.compile(r'import \{([^}]*)\} from "([^"]*)";')
EXPORT = re.compile(r"export (?:async )?(?:function|const|class|let) (?:\{([^}]*)\}|(\w+))")
LONGEST = 120


def test_every_import_is_there() -> None:
    exported = {path.name: _exports(path.read_text()) for path in FILES}
    exported |= {f"vendor/{path.name}": _exports(path.read_text()) for path in (STATIC / "vendor").glob("*.js")}
    for path in FILES:
        text = path.read_text()
        found = IMPORT.findall(text)
        assert len(found) == len(re.findall(r"^import ", text, re.MULTILINE)), path.name
        for names, source in found:
            wanted = {name.split(" as ")[0].strip() for name in names.split(",") if name.strip()}
            assert source.startswith("./"), f"{path.name}: {source}"
            assert wanted <= exported[source[2:]], f"{path.name}: {source} has no {wanted - exported[source[2:]]}"
            unused = {n for n in _bound(names) if len(re.findall(rf"\b{n}\b", text)) < 2}
            assert not unused, f"{path.name}: {unused} are imported and not used"


def test_nothing_sets_html_or_runs_text() -> None:
    dangerous = (
        "innerHTML",
        "outerHTML",
        "dangerouslySetInnerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "srcdoc",
        "javascript:",
    )
    for path in FILES:
        text = path.read_text()
        assert [word for word in dangerous if word in text] == [], path.name


def test_nothing_comes_from_elsewhere() -> None:
    for path in FILES:
        assert re.findall(r"""["'`](?:https?:)?//\w""", path.read_text()) == [], path.name


def test_files_are_short_and_their_names_are_served() -> None:
    for path in FILES:
        lines = path.read_text().splitlines()
        assert len(lines) <= 400, path.name
        assert [line for line in lines if len(line) > LONGEST] == [], path.name
        assert re.fullmatch(r"[a-z0-9_-]{1,64}", path.stem)
        assert lines[0].startswith("// "), path.name


def test_airflow_finds_a_function_for_each_place() -> None:
    pytest.importorskip("airflow.sdk")
    from logyard.plugins.logyard_ui.plugin import LogyardPlugin

    for view in LogyardPlugin.react_apps:
        text = (STATIC / Path(view["bundle_url"]).name).read_text()
        name = view["name"]
        assert f'globalThis["{name}"] = ' in text or f"globalThis.{name} = " in text, name


def test_numbers_are_told_to_people(pure: Any) -> None:
    asked = (
        "[m.bytes(0), m.bytes(1023), m.bytes(1536), m.bytes(-2048), m.bytes(5e15), m.bytes(null), m.number(1234567),"
        " m.number(undefined), m.seconds(0.2), m.seconds(77), m.seconds(600), m.seconds(9000), m.plural(1, 'replica'),"
        " m.plural(2, 'replica'), ['t10', 't2', 't1'].sort(m.compare), [3, null, 1].sort(m.compare)]"
    )
    assert pure("format.js", asked) == [
        *("0 B", "1023 B", "1.5 KiB", "-2.0 KiB", "4.4 PiB", "–", "1,234,567", "–"),
        *("under a second", "77 s", "10 min", "2.5 h", "1 replica", "2 replicas"),
        ["t1", "t2", "t10"],
        [None, 1, 3],
    ]


def test_settings_are_lines(pure: Any) -> None:
    asked = (
        "[m.parse('a=1\\n# no\\n\\n b = 2=3 '), m.parse('nonsense').problem, m.parse('a=1\\na=2').problem,"
        " m.difference({a: '1', b: '2', c: '3'}, {a: '1', b: '9', d: ''}), m.lines({a: '1', b: ''}),"
        " m.editable([{name: 'x', value: '1', override: true}, {name: 'y', value: 'a\\nb', override: true},"
        " {name: 'z', value: null, override: true, sensitive: true}, {name: 'd', value: '1', override: false}])]"
    )
    assert pure("config_lines.js", asked) == [
        {"settings": {"a": "1", "b": "2=3"}, "problem": ""},
        "“nonsense” is not a setting: write name=value",
        "a is set twice",
        {"b": "9", "c": None, "d": ""},
        "a=1\nb=",
        {"x": "1"},
    ]


FORMS = f"const f = await import({json.dumps((STATIC / 'forms.js').as_uri())})"
SAMPLES = {
    "create_topic": {"topic": "t", "partitions": "3", "replication_factor": "", "configs": "cleanup.policy=compact"},
    "alter_topic": {"topic": "t", "before": {"a": "1", "b": "2"}, "configs": "a=2"},
    "expand_topic": {"topic": "t", "partitions": 3, "expand_to": "4"},
    "delete_topic": {"topic": "t", "records": 1, "bytes": 1},
    "empty_topic": {"topic": "t", "records": 9, "before": {"0": 5, "7": 4}},
    "reassign_replicas": {
        "plan": {"partitions_total": 1, "bytes_moved": 8, "bytes_in": {"1": 8}, "bytes_out": {}},
        "exact": True,
        "goals": {"plan": {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}},
        "throttle": "1000",
    },
    "cancel_reassignment": {"moves": 3},
    "elect_leaders": {"topics": ["t"], "notPreferred": 2},
    "elect_unclean": {"topic": "t", "offline": 1},
    "reset_offsets": {"group": "g", "members": 0, "to": "shift", "shift": "5"},
    "delete_group": {"group": "g", "members": 0, "partitions": 2},
    "abort_hanging_transactions": {"topics": ["t"], "hanging": 2},
    "send_record": {"topic": "t", "key": "k", "value": "v", "headers": "a=b", "partition": "2", "partitions": 3},
    "copy_records": {"topic": "t", "to_topic": "u", "start": "time", "time": "2026-01-31T12:00", "partitions": "0, 2"},
    "decommission_broker": {"brokers": "3, 4", "replication_factor": "2", "throttle": ""},
    "alter_broker_settings": {
        "broker": "default",
        "before": {"num.io.threads": "4", "log.retention.ms": "1"},
        "told": {"num.io.threads": "4", "log.retention.ms": "1"},
        "hidden": [],
        "configs": "num.io.threads=8",
    },
    "grant_access": {"user": "a", "writes": "orders., pay.", "groups": "g", "prefixed": True},
    "revoke_access": {"user": "a", "reads": "orders", "delete_user": True},
    "add_acl": {"principal": "User:a", "permission": "DENY", "type": "GROUP", "name": " g ", "prefixed": True},
    "remove_acl": {
        "acl": {
            "permission": "ALLOW",
            "principal": "User:a",
            "operation": "DESCRIBE_CONFIGS",
            "type": "CLUSTER",
            "pattern": "LITERAL",
            "name": "kafka-cluster",
            "host": "*",
        }
    },
    "create_user": {"user": "a", "password_connection": "a_password", "iterations": "4096"},
    "change_password": {"user": "a", "password_connection": "a_password", "mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"},
    "delete_user": {"user": "a"},
    "set_quota": {"of": "user and client", "user": "", "client": "app", "request_percentage": "12.5"},
    "remove_quota": {"of": "ip", "ip": "10.0.0.7", "before": {"connection_creation_rate": 3}},
    "recover_controller": {},
    "compact_segments": {"topics": "a, b"},
    "audit_replicas": {"topics": "a b"},
    "export_segments": {"topics": "a", "destination": "/lake/a"},
    "retention_report": {"topics": ""},
    "topics_as_code": {"file": "topics.yaml"},
}


def test_what_a_form_sends_is_what_the_dag_takes(pure: Any) -> None:
    pytest.importorskip("airflow.sdk")
    from importlib import import_module

    asked = (
        f"Object.entries({json.dumps(SAMPLES)}).map(([name, values]) => {{ const spec = m.ACTIONS[name];"
        " const filled = f.starting(spec, values); return [name, spec.dag, spec.conf(filled), spec.say(filled),"
        " f.wrong(spec, filled), spec.check?.(filled) ?? '', spec.type?.(filled) ?? '', Boolean(spec.danger)]; })"
    )
    found = pure("actions.js", asked, FORMS)
    assert {name for name, *_ in found} == set(pure("actions.js", "Object.keys(m.ACTIONS)"))
    for name, action, conf, said, wrong, whole, word, danger in found:
        dag = getattr(import_module(f"logyard.dags.factories.{action}"), f"{action}_dag")(f"static_{name}_")
        assert set(conf) <= set(dag.params), name
        for key, value in conf.items():
            dag.params.get_param(key).resolve(value)  # raises where the value is not allowed
        assert (wrong, whole) == ({}, ""), name
        assert said, name
        assert danger or not word, name
    confs = {name: conf for name, _, conf, *_ in found}
    assert confs["alter_topic"]["alter"] == {"a": "2", "b": None}
    assert confs["create_topic"] == {
        "topic": "t",
        "partitions": 3,
        "configs": {"cleanup.policy": "compact"},
        "if_exists": "fail",
    }
    assert confs["decommission_broker"]["brokers"] == [3, 4]
    assert confs["recover_controller"]["dry_run"] is True  # who only clicks on changes nothing
    assert confs["reassign_replicas"]["approve"] is False
    assert confs["elect_leaders"] == {"topics": ["t"]}  # nothing unclean that was not asked for by name
    assert confs["alter_broker_settings"] == {
        "broker": "default",
        "settings": {"num.io.threads": "8", "log.retention.ms": None},
    }
    assert "password_connection" not in confs["grant_access"]
    assert confs["change_password"]["change_password"] is True
    assert confs["create_user"]["change_password"] is False  # who has a password keeps it
    assert confs["set_quota"] == {
        "of": "user and client",
        "user": "",
        "client": "app",
        "limits": {"request_percentage": 12.5},
    }
    assert confs["remove_quota"]["limits"] == {"connection_creation_rate": None}
    for name, part in (("add_acl", "add"), ("remove_acl", "remove")):
        assert len(acls.parse(confs[name][part][0])) == 1
    assert confs["reset_offsets"] == {"group": "g", "to": "+5", "topics": [], "approve": True}


def test_acls_are_those_that_kafkas_tool_lets_one_add(pure: Any) -> None:
    assert pure("acl_actions.js", "m.OPERATIONS") == {kind: list(found) for kind, found in acls.OPERATIONS.items()}


def test_an_acl_and_a_limit_are_said(pure: Any) -> None:
    asked = (
        "[m.resource({type: 'TOPIC', pattern: 'LITERAL', name: '*'}),"
        " m.resource({type: 'GROUP', pattern: 'PREFIXED', name: 'g'}),"
        " m.resource({type: 'TRANSACTIONAL_ID', pattern: 'LITERAL', name: 'x'}), m.resource({type: 'CLUSTER'}),"
        " m.limited({user: '', client: null, ip: null}), m.limited({user: 'a', client: '', ip: null}),"
        " m.limited({user: null, client: null, ip: ''}), m.limits({request_percentage: 50, producer_byte_rate: 1024})]"
    )
    assert pure("security_words.js", asked) == [
        *("all topics", "groups that begin with g", "transactional id x", "the cluster"),
        *("all other users", "user a, all other clients", "all other addresses"),
        "writes 1.0 KiB/s, requests 50 % of a thread",
    ]


def test_only_what_differs_of_a_quota_is_sent(pure: Any) -> None:
    # What some set for no limit; it is not exact in JavaScript, and must neither be sent again nor hinder others.
    limits = {"producer_byte_rate": 10, "consumer_byte_rate": 2**63 - 1}
    row = {"user": "a", "client": None, "ip": None, "limits": limits}
    asked = (
        f"(() => {{ const spec = m.setQuota, values = f.starting(spec, m.quotaValues({json.dumps(row)}));"
        " const edited = {...values, producer_byte_rate: '', request_percentage: '7'};"
        " return [spec.check(values), spec.conf(edited), spec.title(values), f.wrong(spec, edited),"
        " Object.keys(f.wrong(spec, {...edited, consumer_byte_rate: '0'}))]; })()"
    )
    assert pure("quota_actions.js", asked, FORMS) == [
        "No limit is changed yet.",
        {"of": "user", "user": "a", "limits": {"producer_byte_rate": None, "request_percentage": 7}},
        "Limits of user a",
        {},
        ["consumer_byte_rate"],
    ]


def test_a_secret_of_a_broker_is_never_sent(pure: Any) -> None:
    names = [*KEYS, "listener.name.a.ssl.keystore.key", "x.sasl.jaas.config", "my.api.key", " SSL.Key.Password"]
    assert pure("config_lines.js", f"m.secrets({json.dumps(names)})") == secret_names(names)
    configs = [
        {"name": "num.io.threads", "value": "4", "override": True},
        {"name": "log.retention.ms", "value": "7", "override": False},
        {"name": "plugin.pass", "value": None, "override": True, "sensitive": True},
    ]
    asked = (
        f"(() => {{ const values = m.brokerSettings(1, {json.dumps(configs)}, 'log.retention.ms');"
        " const typed = (configs) => m.alterBrokerSettings.check({...values, configs});"
        " return [values.configs, values.before, typed(values.configs), typed('num.io.threads=5'),"
        " typed('num.io.threads=4\\nplugin.pass=x'), typed('ssl.key.password=x')]; })()"
    )
    lines, before, added, changed, hidden, named = pure("broker_actions.js", asked)
    assert (lines, before) == ("num.io.threads=4\nlog.retention.ms=7", {"num.io.threads": "4"})
    assert (added, changed) == ("", "")  # what only comes from elsewhere is set here by its line
    assert hidden.startswith("plugin.pass is a secret")
    assert named.startswith("ssl.key.password is a secret")


def test_where_a_group_reads_on_is_asked_for_as_far_as_it_matters(pure: Any) -> None:
    targets: list[dict[str, str]] = [
        {"to": "latest", "shift": "nonsense"},  # left over from another choice
        {"to": "offset", "offset": "42"},
        {"to": "shift", "shift": "-7"},
        {"to": "time", "time": "2026-01-31T12:00:00Z"},
        {"to": "time", "time": "2026-01-31"},
    ]
    asked = (
        f"{json.dumps(targets)}.map((values) => {{ const spec = m.ACTIONS.reset_offsets;"
        " const filled = f.starting(spec, {group: 'g', ...values});"
        " return [f.wrong(spec, filled), spec.conf(filled).to]; })"
    )
    told = ["latest", "42", "-7", "2026-01-31T12:00:00Z", "2026-01-31"]
    assert pure("actions.js", asked, FORMS) == [[{}, to] for to in told]
    wrong = (
        "[{to: 'offset', offset: ''}, {to: 'shift', shift: '0'}, {to: 'time', time: 'soon'}].map((values) =>"
        " Object.keys(f.wrong(m.ACTIONS.reset_offsets, f.starting(m.ACTIONS.reset_offsets, values))))"
        ".concat([m.ACTIONS.reset_offsets.check({group: 'g', members: 2})])"
    )
    assert pure("actions.js", wrong, FORMS) == [
        ["offset"],
        ["shift"],
        ["time"],
        "g has 2 members, and only they may commit: stop them first.",
    ]


# A document, a server and the part of React that polling uses; `served` lists the requests.
BROWSER = """
globalThis.document = { hidden: false, baseURI: 'http://page/', addEventListener(_, seen) { this.seen = seen; },
  removeEventListener() { this.seen = null; } };
globalThis.ReactRouterDOM = {}; globalThis.ChakraUI = {};
const subscribed = [];
globalThis.React = { useCallback: (f) => f, useEffect: () => {},
  useSyncExternalStore: (subscribe, now) => { subscribed.push(subscribe); return now(); } };
const served = [];
globalThis.fetch = async (url, { headers }) => {
  served.push([url, headers['If-None-Match'] ?? '']);
  if (url.includes('gone')) return { status: 404, ok: false, headers: new Map(), text: async () => '{"detail": "no"}' };
  if (headers['If-None-Match'] === 'one') return { status: 304, ok: false, headers: new Map() };
  return { status: 200, ok: true, headers: { get: () => 'one' }, text: async () => '{"a": 1}' };
};
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
"""


def test_polls_are_shared_and_stop_while_the_page_is_hidden(pure: Any) -> None:
    script = """(async () => {
      const told = [0, 0];
      m.usePolled('http://page/x', 20); m.usePolled('http://page/x', 20);
      const leave = subscribed.map((subscribe, index) => subscribe(() => { told[index] += 1; }));
      await wait(130);
      const busy = served.length;
      document.hidden = true; await wait(40);
      const hidden = served.length; await wait(100);
      const still = served.length;
      document.hidden = false; document.seen(); await wait(50);
      const again = served.length;
      leave.forEach((go) => go()); await wait(40);
      const left = served.length; await wait(80);
      return { busy, rested: still - hidden, woke: again > still, after: served.length - left, told,
        tags: [...new Set(served.map((entry) => entry[1]))] };
    })()"""
    found = pure("polling.js", script, BROWSER)
    assert 2 <= found["busy"] <= 8  # one request each 20 ms, not two
    assert (found["rested"], found["woke"], found["after"]) == (0, True, 0)
    assert found["told"] == [1, 1]  # an unchanged answer is not rendered again
    assert found["tags"] == ["", "one"]


def test_refused_requests_become_rare(pure: Any) -> None:
    script = """(async () => {
      m.usePolled('http://page/gone', 20);
      const leave = subscribed[0](() => {}); await wait(150);
      const state = m.usePolled('http://page/gone', 20);
      leave();
      return { asked: served.length, problem: state.problem.message, status: state.problem.status };
    })()"""
    # The first request, and none before sixteen times the pause.
    assert pure("polling.js", script, BROWSER) == {"asked": 1, "problem": "no", "status": 404}


def test_what_is_wrong_with_a_form_is_said(pure: Any) -> None:
    asked = (
        "[f.wrong(m.ACTIONS.create_topic, {topic: 'a b', partitions: '0', replication_factor: 'x', configs: ''}),"
        " f.wrong(m.ACTIONS.create_topic, {topic: ' ', partitions: '', replication_factor: ''}),"
        " m.ACTIONS.expand_topic.check({partitions: 3, expand_to: '3'}),"
        " m.ACTIONS.alter_topic.check({before: {a: '1'}, configs: 'a=1'}),"
        " f.wrong(m.ACTIONS.decommission_broker, {brokers: 'all'})]"
    )
    assert pure("actions.js", asked, FORMS) == [
        {
            "topic": "1 to 249 letters, digits, dots, dashes and underscores",
            "partitions": "A whole number, at least 1.",
            "replication_factor": "A whole number, at least 1.",
        },
        {"topic": "This is required."},
        "There are 3 already, and partitions cannot be removed.",
        "Nothing is changed yet.",
        {"brokers": "ids of brokers, such as 3, 4"},
    ]


def _exports(text: str) -> set[str]:
    found: set[str] = set()
    for several, one in EXPORT.findall(text):
        found |= {name.split(":")[-1].strip() for name in several.split(",") if name.strip()} if several else {one}
    return found


def _bound(names: str) -> set[str]:
    return {name.split(" as ")[-1].strip() for name in names.split(",") if name.strip()}


def test_an_outcome_is_read_from_text_or_object_and_nothing_else(pure: Any) -> None:
    asked = (
        '[m.read(\'{"sentence": "done", "columns": ["n"], "rows": [[1]], "rows_in_all": 3}\'),'
        " m.read({sentence: 'x'}), m.read('no'), m.read(null), m.read({rows: []}), m.read(undefined)]"
    )
    assert pure(
        "outcome.js", asked, before="globalThis.React = {}; globalThis.ChakraUI = {}; globalThis.ReactRouterDOM = {}"
    ) == [
        {"sentence": "done", "columns": ["n"], "rows": [[1]], "more": 2},
        {"sentence": "x", "columns": [], "rows": [], "more": 0},
        *(None, None, None, None),
    ]
