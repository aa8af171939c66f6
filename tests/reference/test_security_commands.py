"""`logyard acls`, `users` and `quotas` beside kafka-acls and kafka-configs, on one secured cluster: the same words."""

import re
import sys
from collections.abc import Callable, Iterator
from io import StringIO

import pytest

from logyard.cli import main as entry
from logyard.cli.users import VARIABLE
from logyard.local import interrupts
from tests.support import kafka, secured
from tests.support.real_cluster import eventually
from tests.support.secured import Secured

pytestmark = pytest.mark.timeout(400)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", params=["K", "O"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    kafka.jars_or_skip()
    with secured.running(tmp_path_factory.mktemp("secured"), request.param) as running:
        yield running


@pytest.fixture
def run(world: Secured, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(interrupts, "raise_once", lambda: None)

    def command(*words: str, user: str = "admin", given: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", StringIO(given))
        capsys.readouterr()
        where = ("--bootstrap-server", world.bootstrap(), "--command-config", str(world.file(user)))
        status = entry.main([*words, *where])
        said = capsys.readouterr()
        return status, said.out, said.err

    return command


def theirs(world: Secured, tool: str, *words: str, given: str = "", check: bool = True) -> str:
    where = ("--bootstrap-server", world.bootstrap(), "--command-config", str(world.file("admin")))
    return kafka.tool(tool, *where, *words, given=given, check=check)


def blocks(text: str) -> set[tuple[str, frozenset[str]]]:
    """Headings with their lines: Kafka's tool has both in any order."""
    found = set()
    for block in re.sub(r"^(ACLs for principal .*)$", r"\1\n", text, flags=re.MULTILINE).split("\n\n"):
        heading, *lines = [line.strip() for line in block.strip().splitlines() if line.strip()] or [""]
        found.add((heading, frozenset(lines)))
    return found


ADDED = [
    ("--allow-principal", "User:alice", "--operation", "Read", "--operation", "DescribeConfigs", "--topic", "flights"),
    ("--allow-principal", "User:bob", "--producer", "--topic", "flights", "--transactional-id", "tx", "--idempotent"),
    (
        *("--allow-principal", "User:carol", "--consumer", "--topic", "fl", "--group", "g"),
        *("--resource-pattern-type", "prefixed"),
    ),
    ("--allow-principal", "User:carol", "--deny-principal", "User:dan", "--deny-host", "10.0.0.1", "--topic", "*"),
    ("--allow-principal", "User:carol", "--cluster", "--operation", "Alter"),
    ("--allow-principal", "User:carol", "--user-principal", "alice", "--operation", "CreateTokens"),
]


def test_acls_are_added_listed_and_removed(world: Secured, run: Run) -> None:
    for words in ADDED:
        status, out, err = run("acls", "add", *words)
        assert (status, err) == (0, ""), words
        assert blocks(out) == blocks(theirs(world, "acls", "--add", *words)), words
    eventually(lambda: "ALTER" in run("acls", "list")[1], "all ACLs are known")
    for words in (
        (),
        ("--topic", "flights", "--resource-pattern-type", "match"),
        ("--group", "g", "--resource-pattern-type", "any"),
        ("--cluster",),
        ("--principal", "User:carol", "--principal", "User:bob", "--topic", "flights"),
    ):
        status, out, err = run("acls", "list", *words)
        assert (status, err) == (0, ""), words
        assert blocks(out) == blocks(theirs(world, "acls", "--list", *words)), words
    one = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "flights")
    refused = run("acls", "remove", *one, given="n\n")
    assert refused[1].strip() == theirs(world, "acls", "--remove", *one, given="n\n").strip()
    assert "(principal=User:alice, host=*, operation=READ" in run("acls", "list", "--topic", "flights")[1]
    assert run("acls", "remove", *one, given="y\n")[0] == 0
    eventually(
        lambda: "(principal=User:alice, host=*, operation=READ," not in run("acls", "list", "--topic", "flights")[1],
        "it is removed",
    )
    assert "DESCRIBE_CONFIGS" in run("acls", "list", "--topic", "flights")[1]
    assert run("acls", "remove", "--topic", "flights", "--force") == (0, "", "")
    eventually(lambda: run("acls", "list", "--topic", "flights")[1] == "", "all are removed")


WHO = (
    *("--allow-principal", "User:CN=writer,OU=Unknown,C=Unknown"),
    *("--allow-principal", r"User:CN=\#special in CN : (\, \+ \" \ \< \> \; ')"),
    *("--allow-host", "10.0.0.1", "--allow-host", "10.0.0.2"),
)
NAMED = {
    "topic": ("--topic", "test-1", "--topic", "test-2"),
    "group": ("--group", "group-1", "--group", "group-2"),
    "cluster": ("--cluster",),
    "transactional id": ("--transactional-id", "t0", "--transactional-id", "t1"),
    "token": ("--delegation-token", "token1", "--delegation-token", "token2"),
    "user": ("--user-principal", "User:a", "--user-principal", "User:b"),
}
OPERATIONS = {
    "topic": "Read Write Create Describe Delete DescribeConfigs AlterConfigs Alter",
    "group": "Read Describe Delete",
    "cluster": "Create ClusterAction DescribeConfigs AlterConfigs IdempotentWrite Alter Describe",
    "transactional id": "Describe Write",
    "token": "Describe",
    "user": "CreateTokens DescribeTokens",
}
CONVENIENCES = [
    ("--producer", *NAMED["topic"], *NAMED["transactional id"]),
    ("--producer", "--idempotent", *NAMED["topic"], *NAMED["transactional id"]),
    ("--consumer", *NAMED["topic"], *NAMED["group"]),
    ("--producer", "--consumer", *NAMED["topic"], *NAMED["group"]),
    ("--producer", "--idempotent", "--consumer", *NAMED["topic"], *NAMED["group"]),
]


def denied(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.replace("--allow-", "--deny-") for word in words)


def operations_of(kind: str) -> tuple[str, ...]:
    return tuple(word for one in OPERATIONS[kind].split() for word in ("--operation", one))


@pytest.mark.parametrize("who", [WHO, denied(WHO)], ids=["allowed", "denied"])
@pytest.mark.parametrize("kind", NAMED)
def test_each_operation_of_each_kind(world: Secured, run: Run, kind: str, who: tuple[str, ...]) -> None:
    """As Kafka's AclCommandTest: added, listed and removed; the other tool sees the same."""
    status, _, err = run("acls", "add", *who, *NAMED[kind], *operations_of(kind))
    assert (status, err) == (0, "")
    principals, hosts = 2, 2
    wanted = len(OPERATIONS[kind].split()) * principals * hosts * (1 if kind == "cluster" else 2)
    eventually(lambda: run("acls", "list", *NAMED[kind])[1].count("(principal=User:CN=") == wanted, "all known")
    assert blocks(run("acls", "list", *NAMED[kind])[1]) == blocks(theirs(world, "acls", "--list", *NAMED[kind]))
    assert run("acls", "remove", *who, *NAMED[kind], *operations_of(kind), "--force") == (0, "", "")
    eventually(lambda: "User:CN=" not in run("acls", "list", *NAMED[kind])[1], "all are removed")


@pytest.mark.parametrize("words", CONVENIENCES, ids=lambda words: " ".join(w for w in words if w[2:3] in "pic"))
def test_what_clients_need(world: Secured, run: Run, words: tuple[str, ...]) -> None:
    """As Kafka's AclCommandTest: what --producer and --consumer add, they remove, by either tool."""
    status, out, err = run("acls", "add", *WHO, *words)
    assert (status, err) == (0, "")
    assert blocks(out) == blocks(theirs(world, "acls", "--add", *WHO, *words))
    eventually(lambda: "CREATE" in run("acls", "list", "--topic", "test-2")[1] or "--producer" not in words, "known")
    assert run("acls", "remove", *WHO, *words, "--force") == (0, "", "")
    eventually(lambda: "CN=writer" not in run("acls", "list")[1], "all are removed")


@pytest.mark.parametrize("pattern", ["literal", "prefixed", "match", "any", "unknown"])
def test_kinds_of_patterns(run: Run, pattern: str) -> None:
    """As Kafka's AclCommandTest: an ACL is literal or prefixed, a search is anything that is known."""
    words = ("--topic", "Test", "--resource-pattern-type", pattern)
    assert run("acls", "add", "--allow-principal", "User:x", "--producer", *words)[0] == (pattern[0] not in "lp")
    assert run("acls", "list", *words)[0] == (pattern == "unknown")
    assert run("acls", "remove", *words, "--force")[0] == (pattern == "unknown")


@pytest.mark.parametrize(
    "words",
    [
        ("--topic", "flights"),
        ("--allow-principal", "User:a", "--producer", "--group", "g"),
        ("--allow-principal", "User:a", "--idempotent", "--topic", "f", "--operation", "Read"),
        ("--allow-principal", "User:a", "--consumer", "--topic", "f"),
        ("--allow-principal", "User:a", "--producer", "--topic", "f", "--operation", "Read"),
        ("--allow-principal", "User:a", "--consumer", "--topic", "f", "--group", "g", "--operation", "Read"),
        ("--allow-principal", "alice", "--topic", "flights"),
        ("--allow-principal", "User:alice", "--operation", "Read"),
        ("--allow-principal", "User:a", "--topic", "f", "--resource-pattern-type", "any"),
        ("--deny-principal", "User:a", "--producer", "--topic", "f"),
    ],
)
def test_what_is_refused_before_it_is_sent(world: Secured, run: Run, words: tuple[str, ...]) -> None:
    status, out, err = run("acls", "add", *words)
    assert (status, out, len(err.splitlines())) == (1, "", 1)
    said = theirs(world, "acls", "--add", *words, check=False).splitlines()[0]
    assert err.removeprefix("logyard: ").strip() in said


def test_who_may_not_is_told(run: Run) -> None:
    status, out, err = run("acls", "list", user="alice")
    assert (status, out, len(err.splitlines())) == (1, "", 1)
    assert "authoriz" in err.lower()


def test_users(world: Secured, run: Run, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "first-password")
    assert run("users", "add", "--user", "zoe", "--mechanism", "SCRAM-SHA-256,SCRAM-SHA-512") == (
        0,
        "Completed updating config for user zoe.\n",
        "",
    )
    shown = "SCRAM credential configs for user-principal 'zoe' are "
    said = theirs(world, "configs", "--describe", "--entity-type", "users", "--entity-name", "zoe")
    assert run("users", "list", "--user", "zoe")[1] == said
    assert said.startswith(shown)
    status, _, err = run("users", "add", "--user", "zoe")
    assert (status, "exists" in err) == (1, True)
    monkeypatch.delenv(VARIABLE)
    words = ("users", "change-password", "--user", "zoe", "--password-file", "-")
    assert run(*words, given="second-password\n")[0] == 0
    world.users["zoe"] = secured.Secrets(scram="second-password")
    assert eventually(lambda: run("acls", "list", user="zoe")[2], "she can log in").count("\n") == 1
    assert run("users", "delete", "--user", "zoe", "--mechanism", "SCRAM-SHA-256")[0] == 0
    eventually(lambda: "SHA-256" not in run("users", "list", "--user", "zoe")[1], "one mechanism is gone")
    assert run("users", "delete", "--user", "zoe")[0] == 0
    eventually(lambda: run("users", "list", "--user", "zoe")[1] == "", "she is gone")
    assert run("users", "delete", "--user", "zoe")[2] == "logyard: there is no user zoe with SCRAM credentials\n"
    listed = {re.split("'", line)[1] for line in run("users", "list")[1].splitlines()}
    assert listed == {"admin", "alice", "bob", "nobody"}


def test_a_password_is_not_asked_for_in_vain(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert "no password: give --password-file" in run("users", "add", "--user", "zoe")[2]
    assert "mechanism 'MD5'" in run("users", "add", "--user", "zoe", "--mechanism", "md5")[2]
    assert "between 4096 and 16384" in run("users", "add", "--user", "zoe", "--iterations", "1")[2]
    assert "is empty" in run("users", "add", "--user", "zoe", "--password-file", "-", given="\n")[2]


def test_quotas(world: Secured, run: Run) -> None:
    for ours, tool in (
        (("--user", "zoe"), ("--entity-type", "users", "--entity-name", "zoe")),
        (("--user", ""), ("--entity-type", "users", "--entity-default")),
        (("--client", "c"), ("--entity-type", "clients", "--entity-name", "c")),
        (("--user", "zoe", "--client", "c"), ("--entity-type", "users,clients", "--entity-name", "zoe")),
    ):
        status, out, err = run("quotas", "set", *ours, "--producer-byte-rate", "20000000", "--request-percentage", "5")
        assert (status, err) == (0, "")
        assert out.startswith("Completed updating")
        if "," not in tool[1]:
            said = theirs(world, "configs", "--describe", *tool)
            quota = [line for line in said.splitlines() if line.startswith("Quota")]
            assert run("quotas", "list", *ours)[1].splitlines() == quota
            assert len(quota) == 1
    assert run("quotas", "set", "--ip", "127.0.0.9", "--connection-creation-rate", "5")[0] == 0
    assert len(run("quotas", "list")[1].splitlines()) == 5
    assert run("quotas", "remove", "--user", "zoe", "--key", "request_percentage")[0] == 0
    assert "request_percentage" not in run("quotas", "list", "--user", "zoe")[1]
    assert run("quotas", "remove", "--user", "zoe") == (0, "Completed updating config for user zoe.\n", "")
    assert run("quotas", "list", "--user", "zoe")[1] == ""
    assert run("quotas", "remove", "--user", "zoe")[2] == "logyard: user zoe has no quota\n"
    assert "above 0" in run("quotas", "set", "--user", "zoe", "--producer-byte-rate", "0")[2]
    assert "name a limit" in run("quotas", "set", "--user", "zoe")[2]
