"""GSSAPI with what others have written: a cluster of both kinds whose brokers log in by Kerberos, Java's clients on
ours, our commands on Apache Kafka's, and Kafka's own class for the rules of names."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka import KafkaProducer

from logyard.broker.security.sasl.kerberos_names import KerberosNames, NoLocalName
from logyard.local.ports import Ports
from tests.support import kafka
from tests.support.kerberos import Realm, running_realm
from tests.support.real_cluster import RealCluster, eventually
from tests.support.secured import listeners_file

pytestmark = pytest.mark.timeout(400)

KINDS = "KO"
EVENTS = [b"%d" % number for number in range(100)]
LISTENER = "SASL_PLAINTEXT"


class World:
    """The realm, and a broker of each kind."""

    def __init__(self, directory: Path, realm: Realm) -> None:
        self.directory, self.realm = directory, realm
        self.cluster: RealCluster = None  # type: ignore[assignment]  # set by the fixture
        ports = Ports(directory)
        self.addresses = [f"localhost:{ports.choose(f'broker-{b}-sasl')}" for b in range(len(KINDS))]
        listeners_file(directory).write_text(json.dumps({b: {LISTENER: a} for b, a in enumerate(self.addresses)}))

    def keys(self) -> dict[str, str]:
        return {
            "security.inter.broker.protocol": LISTENER,  # by GSSAPI, the default
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            f"listener.name.{LISTENER.lower()}.gssapi.sasl.jaas.config": self.realm.jaas("kafka/localhost"),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:kafka;User:alice;User:ANONYMOUS",
        }

    def file(self, principal: str) -> str:
        path = self.directory / f"{principal.replace('/', '_')}.properties"
        lines = {
            "security.protocol": LISTENER,
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": self.realm.jaas(principal, initiates_only=True),
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return str(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    kafka.jars_or_skip()
    with ExitStack() as stack:
        realm = stack.enter_context(running_realm(tmp_path_factory.mktemp("realm")))
        stack.enter_context(realm.inside("alice"))
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        patched.setenv("JAVA_TOOL_OPTIONS", " ".join(realm.java_options))
        directory = tmp_path_factory.mktemp("kerberos")
        made = World(directory, realm)
        made.cluster = stack.enter_context(kafka.running(directory, KINDS, made.keys()))
        made.cluster.create("flights", partitions=2, replicas=2)
        yield made


def test_brokers_of_both_kinds_replicate(world: World) -> None:
    eventually(lambda: world.cluster.isrs_full("flights"), "both replicas are in sync", 60)
    assert len(world.cluster.produce("flights", [(None, event) for event in EVENTS])) == len(EVENTS)
    eventually(lambda: len(set(world.cluster.digests("flights", 0).values())) == 1, "both have the same bytes")


@pytest.mark.parametrize("broker", range(len(KINDS)))
def test_javas_clients(world: World, broker: int) -> None:
    topic = f"java-{broker}"
    world.cluster.create(topic, partitions=1, replicas=2)
    where = ("--bootstrap-server", world.addresses[broker], "--topic", topic)
    sent = "\n".join(event.decode() for event in EVENTS) + "\n"
    kafka.tool("console-producer", *where, "--producer.config", world.file("alice"), given=sent)
    read = kafka.tool(
        "console-consumer", *where, "--consumer.config", world.file("alice"), "--from-beginning", "--max-messages",
        str(len(EVENTS)), "--timeout-ms", "30000",
    )  # fmt: skip
    assert [line.encode() for line in read.splitlines() if line.isdigit()] == EVENTS
    refused = kafka.tool("console-producer", *where, "--producer.config", world.file("bob"), given="x\n", check=False)
    assert "TopicAuthorizationException" in refused


@pytest.mark.parametrize("broker", range(len(KINDS)))
def test_our_commands_and_kafka_python(world: World, broker: int) -> None:
    command = [str(Path(sys.executable).with_name("logyard")), "topics", "list"]
    where = ["--bootstrap-server", world.addresses[broker], "--command-config", world.file("alice")]
    done = subprocess.run([*command, *where], capture_output=True, text=True, timeout=60, check=False, env=os.environ)
    assert "flights" in done.stdout, done.stdout + done.stderr
    with KafkaProducer(
        bootstrap_servers=world.addresses[broker],
        security_protocol=LISTENER,
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
        acks="all",
    ) as producer:
        assert producer.send("flights", b"x").get(30).offset >= 0


PIECES = ["$0", "$1", "$2", "$1$2", "a", ".", "-", "B", "@", "/", ""]
PATTERNS = ["", "(.*)", "(a.*)", "([a-c]+)", "(B|x)", "(.)"]
CHANGES = ["", "s/a/b/", "s/a/b/g", "s/(.)b/$1x/g", "s/.*/y/", "s/[.-]//g", "s/(a)|b/<$1>/", r"s/a/\$1/", "s/x*/-/g"]
ENDS = ["", "/L", "/U", "L", "/", "/LU"]
NAMES = ["a", "B", "ab", "a.b", "x-a", "aab", "c$1", "é"]


def drawn(chance: random.Random) -> tuple[list[str], str]:
    rules = [
        "DEFAULT"
        if chance.random() < 0.2
        else f"RULE:[{chance.randint(0, 3)}:{''.join(chance.choices(PIECES, k=chance.randint(0, 3)))}]"
        + chance.choice(PATTERNS) + chance.choice(CHANGES) + chance.choice(ENDS)
        for _ in range(chance.randint(1, 3))
    ]  # fmt: skip
    parts = "/".join(chance.choices(NAMES, k=chance.choice([1, 1, 2, 2, 3])))
    return rules, parts + chance.choice(["@HOME", "@HOME", "@AWAY", "@", ""])


def ours(rules: list[str], principal: str) -> str:
    try:
        return KerberosNames(rules, "HOME").name_of(principal)
    except NoLocalName:
        return "!"
    except ValueError:
        return "?"


def test_rules_give_what_kafkas_class_gives() -> None:
    jars, chance = kafka.jars_or_skip(), random.Random(0)
    cases = [drawn(chance) for _ in range(4000)]
    source = Path(__file__).with_name("KerberosRules.java")
    given = "".join(";;".join([*rules, principal]) + "\n" for rules, principal in cases)
    done = subprocess.run(
        ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", f"{jars}/*", str(source)],
        input=given, capture_output=True, text=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    answers = [line[1:] for line in done.stdout.splitlines() if line.startswith("=")]
    assert len(answers) == len(cases), done.stderr
    # An empty name is refused here, and a text with / but without @, which is a name there.
    different = [
        (case, theirs, found)
        for case, theirs in zip(cases, answers, strict=True)
        if (found := ours(*case)) != theirs and theirs != "" and "/" not in theirs
    ]
    assert different == []
    assert sum(answer not in ("!", "?") for answer in answers) > 500
