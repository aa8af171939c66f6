"""What people, programs and other versions have written is read, or refused by an error of ours; never a traceback.

Each parser gets what it understands with one part replaced by something odd, and text made of what it looks for.
"""

import copy
import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logyard.admin.acls import acls
from logyard.admin.cluster import elections, features
from logyard.admin.configs import entities
from logyard.admin.errors import LogyardError
from logyard.admin.groups import reset_scenarios
from logyard.admin.groups.offset_reset import Target
from logyard.admin.quotas import quotas
from logyard.admin.reassignment import json_files
from logyard.admin.reassignment.disks import read_capacities
from logyard.admin.reassignment.plan import Plan
from logyard.admin.reassignment.throttles.records import HELD, TOPIC, Claim, Record, ThrottleSetting
from logyard.admin.recovery import journal
from logyard.admin.recovery.case import Case
from logyard.admin.settings import ClusterSettings
from logyard.admin.topics.access import Access
from logyard.admin.topics.document import Catalog
from logyard.admin.users import users
from logyard.broker.znodes.ops import Znode
from logyard.cli import command_config, throttle_records
from logyard.cli.topics import text as topics
from logyard.local.errors import LocalError

HUGE = st.sampled_from([10**400, -(10**30), 1e300, float("inf"), float("-inf"), float("nan"), "9" * 5000, "1e999"])
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | HUGE | st.text("0123456789,:=@[]{}\"' -+.TPDe\\\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)

CONNECTION = {
    "zookeeper": "z:2181",
    "request_timeout_s": 5,
    "total_timeout_s": "60",
    "throttle": 10,
    "disk_capacities": {"1": 100},
    "broker_ids": [1, "2@h:9092"],
    "http_tokens": {"1": "t"},
    "broker_start_command": ["start", "{broker_id}"],
    "schema.registry.url": "http://r:1",
    "security_protocol": "PLAINTEXT",
    "ssl_check_hostname": True,
    "bootstrap.servers": "a:1",
}
MOVE = {"topic": "t", "partition": 0, "from": [1], "replicas": [2]}
PLAN = {"cluster_id": "c", "taken_at_ms": 5, "partitions": [MOVE]}
RECORD = Record("o", 1, HELD, {ThrottleSetting(TOPIC, "t", "k"): Claim("0:1", True, None, ("0:1",), 1, 1)}).as_json()
CATALOG = {
    "version": 1,
    "cluster_id": "c",
    "owns": ["a*"],
    "defaults": {"partitions": 1},
    "topics": {"a": {"partitions": 2, "replication_factor": 1, "configs": {"retention.ms": 5}}},
    "users": {"u": {"password_conn_id": "x", "mechanisms": "SCRAM-SHA-256", "iterations": 4096}},
    "acls": [{"principal": "User:a", "topic": "t", "operation": "Read"}],
    "quotas": [{"user": "a", "producer_byte_rate": 5}],
}
ACL = {"principal": "User:a", "topic": "t", "operation": ["Read"], "host": "*"}
DOCUMENTS: dict[str, tuple[Any, Callable[[Any], object]]] = {
    "connection": (CONNECTION, lambda found: ClusterSettings.read("a:1", found).expected_brokers()),
    "plan": (PLAN, Plan.from_json),
    "plan, text": (PLAN, lambda found: Plan.from_json(json.dumps(found))),
    "throttle": (RECORD, lambda found: Record.from_json(found).partitions()),
    "case": (Case().as_json(), Case.from_json),
    "capacities": ({"1": 5, "2": "6"}, lambda found: read_capacities(found, [1, 2])),
    "step": (
        {"version": 1, "step": "fence", "broker": 1},
        lambda f: journal.decode(Znode(json.dumps(f).encode(), 0, 0)),
    ),
    "owner": (["h", 1, 2, "b", "x"], lambda found: throttle_records.lives(json.dumps(found))),
    "moves": (PLAN, lambda found: json_files.parse_execution(json.dumps(found))),
    "topics to move": ({"version": 1, "topics": [{"topic": "t"}]}, lambda f: json_files.parse_topics(json.dumps(f))),
    "elections": (PLAN, lambda found: elections.parse_partitions(json.dumps(found))),
    "catalog": (CATALOG, Catalog.read),
    "access": (CATALOG, Access.read),
    "acl": (ACL, acls.parse),
    "quota": ({"user": "a", "producer_byte_rate": 5}, quotas.parse),
}
TEXTS: dict[str, tuple[str, Callable[[str], object]]] = {
    "csv": ('gt,0159"\n\r\0-', lambda text: reset_scenarios.parse_csv(text, ["g"])),
    "partitions": ("t:0159,²٣", lambda text: reset_scenarios.parse_topics([text], lambda name: 2)),
    "time": ("0123456789-:TZ.+ W/", reset_scenarios.parse_time),
    "duration": ("-PTDHMSWY0159.", reset_scenarios.parse_duration),
    "target": ("+-0159TZ:.", Target.parse),
    "settings": ("ab=[],{}5 ", entities.parse_additions),
    "credential": ("iterations=,password5-[]", lambda text: entities.parse_credential("SCRAM-SHA-256", text)),
    "features": ("ab=0159²", lambda text: features.parse([text])),
    "assignment": ("0159:,-_ ²", topics.parse_assignment),
    "pattern": ("ab.*+?{}[]()|,\\0159^$", lambda text: topics.matching(text, ["a"])),
    "brokers": ("0159,-_ ", json_files.parse_brokers),
    "mechanisms": ("SCRAM-256,1 ", users.mechanisms),
    "principal": ("User:a*, ", acls.principal),
    "bootstrap": ("ab:,[]0159/@", ClusterSettings.read),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    found = copy.deepcopy(value)
    inside = found
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = by
    return found


@pytest.mark.parametrize("kind", DOCUMENTS)
@given(data=st.data())
def test_documents(kind: str, data: st.DataObject) -> None:
    known, read = DOCUMENTS[kind]
    # What these get is an object already: their callers' types, or Airflow's form, say so.
    first = 1 if kind in ("connection", "access", "acl", "quota") else 0
    odd = replaced(known, data.draw(st.sampled_from(places(known)[first:])), data.draw(ODD))
    with suppress(LogyardError, LocalError), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of a regular expression that another Python may read otherwise
        read(odd)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_documents_as_they_should_be(kind: str) -> None:
    known, read = DOCUMENTS[kind]
    read(known)


@pytest.mark.parametrize("kind", TEXTS)
@given(data=st.data())
def test_texts(kind: str, data: st.DataObject) -> None:
    letters, read = TEXTS[kind]
    text = data.draw(st.text(letters) | st.text() | st.sampled_from(["9" * 5000, "a{99999999999}", "P9999999999D"]))
    with suppress(LogyardError, LocalError):
        read(text)


@given(text=st.text("ab =:#!\\\n\r\tu0d85\u2028") | st.text())
def test_properties(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.properties"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with suppress(LogyardError, LocalError):
        command_config.settings("a:1", command_config.read(path))


VALUES = st.text("ab \\\n\r\t\f#=:\u2028\u00a0é𝄞")


@given(values=st.dictionaries(st.sampled_from(["a", "b.c", "sasl.password"]), VALUES))
def test_what_was_written_is_read_again(values: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "written.properties"
    path.unlink(missing_ok=True)
    command_config.write(path, values, "--client-config")
    assert command_config.read(path) == values
