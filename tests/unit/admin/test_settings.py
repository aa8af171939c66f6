"""Connections read, launchers filled in: every wrong value is named."""

import json
from pathlib import Path

import pytest

from logyard.admin.connector import CommandLauncher, fill
from logyard.admin.recovery.witnesses import HostState
from logyard.admin.settings import BadSettings, ClusterSettings
from logyard.broker.errors import LogyardError


def test_a_full_connection() -> None:
    settings = ClusterSettings.read(
        "a:1, b:2",
        {"zookeeper": "z:3", "security_protocol": "sasl_ssl", "sasl_mechanism": "PLAIN", "broker_ids": "[1, 2]"},
        username="u",
        password="secret",
    )
    assert settings.bootstrap == ("a:1", "b:2")
    assert settings.security_protocol == "SASL_SSL"
    assert settings.expected_brokers() == {1: ("", 0), 2: ("", 0)}
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("host", "extra", "named"),
    [
        ("", {}, "bootstrap"),
        ("a:1", {"security_protocol": "TLS"}, "security_protocol"),
        ("a:1", {"security_protocol": "SASL_SSL"}, "sasl_mechanism"),
        ("a:1", {"request_timeout_s": "soon"}, "request_timeout_s"),
        ("a:1", {"broker_start_command": "rm -rf"}, "broker_start_command"),
        ("a:1", {"ssl_check_hostname": "maybe"}, "ssl_check_hostname"),
        ("a:1", {"disk_capacities": "large"}, "disk_capacities"),
        ("a:1", {"broker_ids": ["one"]}, "broker_ids"),
        ("a:1", {"broker_ids": ["1@b-1"]}, "broker_ids"),
        ("a:1", {"disk_capacities": [1, 2]}, "disk_capacities"),
        ("a:1", {"disk_capacities": "1e999"}, "disk_capacities"),
        ("a:1", {"http_tokens": {"1e999": "t"}}, "http_tokens"),
        ("a:1", {"total_timeout_s": "nan"}, "total_timeout_s"),  # of which no moment would be the end
        ("a:1", {"total_timeout_s": float("inf")}, "total_timeout_s"),
        ("a:1", {"throttle": "inf"}, "throttle"),
        ("a:1", {"broker_ids": ["9" * 5000]}, "broker_ids"),
        ("a:1,b:nine", {}, "bootstrap server 'b:nine'"),
        ("a:99999", {}, "bootstrap server 'a:99999'"),
        (":9092", {}, "bootstrap server ':9092'"),
        ("[::1]", {}, "host:port is expected"),
    ],
)
def test_wrong_values_are_named(host: str, extra: dict[str, object], named: str) -> None:
    with pytest.raises(BadSettings, match=named):
        ClusterSettings.read(host, extra)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("", None), ("{}", None), (7, 7), ("7", 7), ('{"2": 9, "1": 8}', ((1, 8), (2, 9))), ({"1": 8}, ((1, 8),))],
)
def test_capacities_are_read_from_forms_and_json(given: object, expected: object) -> None:
    assert ClusterSettings.read("a:1", {"disk_capacities": given}).disk_capacities == expected


def test_brokers_that_ought_to_run_may_come_with_their_addresses() -> None:
    told = ClusterSettings.read("a:1", {"broker_ids": ["1@b-1:9092", 2, "3@[::1]:9093"]})
    assert told.expected_brokers() == {1: ("b-1", 9092), 2: ("", 0), 3: ("::1", 9093)}


def test_the_cluster_file_tells_which_brokers_ought_to_run(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"brokers": [{"id": 2, "host": "127.0.0.1", "port": 9}]}))
    assert ClusterSettings.read("a:1", {"cluster_file": str(file)}).expected_brokers() == {2: ("127.0.0.1", 9)}
    file.write_text("{}")
    with pytest.raises(BadSettings, match="cluster_file"):
        ClusterSettings.read("a:1", {"cluster_file": str(file)}).expected_brokers()


def test_launcher_arguments_are_filled_in() -> None:
    assert fill("x", ["ssh", "{host}", "kafka@{broker_id}"], 3, "h-1.example") == ["ssh", "h-1.example", "kafka@3"]


@pytest.mark.parametrize(
    ("command", "host"),
    [([], "h"), (["ssh", "{host}"], "-oProxyCommand=x"), (["ssh", "{host}"], "a;b"), (["x", "{secret}"], "h")],
)
def test_nothing_else_gets_into_a_command(command: list[str], host: str) -> None:
    with pytest.raises(BadSettings):
        fill("broker_start_command", command, 1, host)


def test_stopping_is_optional() -> None:
    assert CommandLauncher(["true"]).stop(1) is False
    assert CommandLauncher(["true"], ["true", "{broker_id}"]).stop(1) is True


def test_a_command_that_fails_says_why() -> None:
    CommandLauncher(["true"]).start(1)
    with pytest.raises(LogyardError, match="no such broker"):
        CommandLauncher(["python3", "-c", "import sys; sys.exit('no such broker')"]).start(1)
    with pytest.raises(LogyardError, match="starting broker 7"):
        CommandLauncher(["/nonexistent/launcher"]).start(7)


def test_an_address_may_have_no_port_or_be_of_ip_v6() -> None:
    assert ClusterSettings.read("broker, [::1]:9092, ::1:9092", {}).bootstrap == ("broker", "[::1]:9092", "::1:9092")


def test_a_status_command_may_print_what_is_no_text() -> None:
    launcher = CommandLauncher(["true"], status=["printf", r"gone \377"])
    assert launcher.host_state(1) is HostState.GONE
