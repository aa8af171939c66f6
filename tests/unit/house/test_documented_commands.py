"""Every command, option, setting and `make` target that the pages name is there."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import typer

from logyard.broker.config.keys import KEYS
from logyard.broker.config.listener_keys import base_of
from logyard.broker.config.topic_keys import TOPIC_KEYS
from logyard.broker.log_levels import LOGGERS
from logyard.cli.main import app
from logyard.operators.provider_info import get_provider_info
from tests.support import references

# What happened is told under the names of its time; the facts are about other people's tools.
PAGES = {
    name: text
    for name, text in references.texts(".md")
    if name != "CHANGELOG.md" and not name.startswith("docs/facts/")
}
BLOCK = re.compile(r"^```(?:console|bash|sh)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
SETTING = re.compile(r"^[a-z]+(?:\.[a-z]+)+(?:=.*)?$")
# Options and settings of others' programs that the pages name.
OTHERS_OPTIONS = {
    "--build": "docker compose",
    "--constraint": "pip",
    "--force-recreate": "docker compose",
    "--packages-only": "scripts/setup",
    "--entity-type": "kafka-configs",
    "--now": "systemctl",
    "--packages": "spark-submit",
    "--remote": "spark-submit",
}
OTHERS_DOTTED = {
    "fetch.queue.backoff.ms": "librdkafka",
    "bootstrap.servers": "librdkafka and Kafka's clients",
    "security.protocol": "librdkafka and Kafka's clients",
    "sasl.mechanism": "Kafka's clients",
    "sasl.mechanisms": "librdkafka",
    "sasl.username": "librdkafka",
    "ssl.ca.location": "librdkafka",
    "kafka.sasl.password": "librdkafka, behind `kafka.`",
    "transaction.version": "a feature",
    "client.properties": "a file of Kafka's tools",
    "kafka.bootstrap.servers": "Spark's Kafka source",
    "wap.id": "Iceberg",
    "gc.enabled": "Iceberg",
    "bg.subtle": "Airflow's page",
    "fg.muted": "Airflow's page",
    "asyncio.timeout": "Python",
    "auto.offset.reset": "Kafka's consumer",
    "client.rack": "Kafka's consumer",
    "alice.properties": "a file of an example",
    "broker.properties": "a file of an example",
    "ca.pem": "a file of an example",
    "passwords.json": "a file of the containers",
    "df.write": "Spark",
    "kafka.compression.type": "librdkafka, behind `kafka.`",
    "kafka.queue.buffering.max.kbytes": "librdkafka, behind `kafka.`",
    "kafka.sasl.username": "librdkafka, behind `kafka.`",
    "kafka.security.protocol": "librdkafka, behind `kafka.`",
    "isolation.level": "Kafka's consumer",
    "offsets.storage": "Kafka's old consumer",
    "store.logs": "a member of ours",
    "validation.validate": "a function of ours",
    "gc.freeze": "Python",
    "transport.write": "asyncio",
    "kafka.protocol.schemas": "kafka-python",
    "server.properties": "a file of Kafka",
    "meta.properties": "a file of Kafka",
    "partition.metadata": "a file of Kafka",
    "decision.bytes": "a file of a lease",
    "http.token": "a file in the first log directory",
    "http.runs": "a file in the first log directory",
    "lease.json": "a file of a lease",
    "findings.parquet": "a file of the audit",
    "replicas.parquet": "a file of the audit",
    "index.html": "a file of the audit",
    "out.raw": "a file of py-spy",
}


def commands(text: str) -> Iterator[str]:
    """The command lines of a page: those of its blocks, continued lines joined, and those in backticks."""
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.strip().removeprefix("$ ").split(" #")[0]
    yield from references.CODE.findall(references.FENCE.sub("", text))


def is_setting(name: str) -> bool:
    if name.startswith(("spark.", "pyspark.")):  # Spark's own settings, objects and modules
        return False
    return bool(SETTING.match(name)) and not references.FILE.match(name) and not references.MODULE.match(name)


@cache
def logyard() -> Any:
    return typer.main.get_command(app)


def wrong(line: str) -> str | None:
    """What is wrong with a command line of ours, or None; a line of another program is right."""
    words = re.sub(r"[\[\]…()]|\.\.\.", " ", line).split()
    if words[:1] == ["make"] and len(words) > 1:
        return None if re.search(rf"^{re.escape(words[1])}:", _makefile(), re.MULTILINE) else f"no target: {line}"
    if words[:2] == ["python", "-m"] and len(words) > 2 and words[2].startswith(("logyard.", "tests.")):
        return None if find_spec(words[2]) else f"no module: {line}"
    if words[:1] == ["spark-submit"]:
        script = next((word for word in words if word.endswith(".py")), "")
        return None if not script or references.known(script) else f"no file {script}: {line}"
    if words[:1] != ["logyard"]:
        return None
    command = logyard()
    options = set()
    for word in words[1:]:
        inner = getattr(command, "commands", None)
        if inner is None or not re.fullmatch(r"[a-z-]+", word) or word.startswith("-"):
            break
        if word not in inner:
            return f"no command {word}: {line}"
        command = inner[word]
    options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"--help"}
    missing = [name for name in OPTION.findall(" ".join(words)) if name not in options]
    return f"no option {', '.join(missing)}: {line}" if missing and not hasattr(command, "commands") else None


@cache
def _makefile() -> str:
    return (references.ROOT / "Makefile").read_text()


@cache
def all_options() -> frozenset[str]:
    """The options of every command of ours, those of typer by their parameters, those of argparse by their text."""
    found = set(OTHERS_OPTIONS) | {"--help"}
    waiting = [logyard()]
    while waiting:
        command = waiting.pop()
        found.update(name for param in command.params for name in (*param.opts, *param.secondary_opts))
        waiting.extend(getattr(command, "commands", {}).values())
    for name, text in references.texts(".py"):
        if not name.startswith("tests/unit"):
            found.update(re.findall(r'"(--[a-z][a-z0-9-]+)"', text))
    return frozenset(found)


def test_command_lines_are_right() -> None:
    found = {name: lines for name, text in PAGES.items() if (lines := [w for c in commands(text) if (w := wrong(c))])}
    assert found == {}


def test_options_exist() -> None:
    missing = {
        name: sorted(lost)
        for name, text in PAGES.items()
        if (lost := {option for line in commands(text) for option in OPTION.findall(line)} - all_options())
    }
    assert missing == {}


def _of_broker(name: str) -> str:
    """The setting's name without a value, and without the listener whose own it is."""
    key = name.partition("=")[0]
    return base_of(key) or key


def test_settings_exist() -> None:
    known = {*KEYS, *TOPIC_KEYS, *LOGGERS, *OTHERS_DOTTED}
    missing = {
        name: sorted(lost)
        for name, text in PAGES.items()
        if (lost := {_of_broker(name) for name in references.names(text) if is_setting(name)} - known)
    }
    assert missing == {}


def test_settings_of_airflow_exist() -> None:
    known = set(get_provider_info()["config"]["logyard"]["options"])
    missing = {
        name: sorted(lost)
        for name, text in PAGES.items()
        if (lost := set(re.findall(r"`\[logyard\] (\w+)", text)) - known)
    }
    assert missing == {}


def test_planted_faults_are_found() -> None:
    assert wrong("make no-such-target")
    assert wrong("logyard topics no-such-command")
    assert wrong("logyard topics list --no-such-option")
    assert wrong("python -m logyard.no_such_module")
    assert wrong("spark-submit spark_jobs/no_such.py --topic t")
    assert wrong("make demo") is None
    assert wrong(shlex.join(["logyard", "topics", "list", "--bootstrap-server", "127.0.0.1:9092"])) is None
