"""`airflow logyard …`, as Airflow's own parser has it."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.cli import airflow_command, command_config, main
from logyard.operators.provider_info import get_provider_info

pytestmark = pytest.mark.airflow


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `logyard` is called with, and what the file of the login had."""
    found: list[Any] = []

    def call(words: list[str]) -> int:
        found.append(words)
        if "--command-config" in words:
            path = Path(words[words.index("--command-config") + 1])
            found.append((command_config.read(path), path.stat().st_mode & 0o777, path))
        return 3

    monkeypatch.setattr(main, "main", call)
    return found


def airflow(*words: str) -> int:
    from airflow.cli import cli_parser

    args = cli_parser.get_parser().parse_args(["logyard", *words])
    with pytest.raises(SystemExit) as ended:
        args.func(args)
    return int(str(ended.value.code))


def test_airflow_knows_the_command(asked: list[Any]) -> None:
    (path,) = get_provider_info()["cli"]
    assert path == f"{airflow_command.__name__}.get_airflow_commands"
    words = ["topics", "describe", "--topic", "t", "--bootstrap-server", "a:1"]
    assert airflow(*words) == 3
    assert asked == [words]


def test_a_connection_gives_address_and_login(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "ssl_ca": "-----BEGIN\nx",
        "ssl_check_hostname": False,
    }
    secured = {"conn_type": "logyard", "host": "a:1,b", "login": "u", "password": "secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_WEST", json.dumps(secured))
    assert airflow("--conn-id", "kafka_west", "topics", "list") == 3
    words, (properties, mode, path) = asked
    assert words[:4] == ["topics", "list", "--bootstrap-server", "a:1,b:9092"]
    assert "secret" not in " ".join(words)
    assert (properties["username"], properties["password"], mode) == ("u", "secret", 0o600)
    assert properties["ssl_ca"] == "-----BEGIN\nx"
    assert not path.exists()


def test_help_of_our_own_is_asked_for_behind_dashes(asked: list[Any]) -> None:
    airflow("--", "--help")
    assert asked == [["--help"]]
