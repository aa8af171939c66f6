"""Stock clients where `transaction.version` 2 is finalized: those that know it, and those that do not, as before."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from logyard.cli.main import main
from tests.integration.test_transactions import (  # noqa: F401  # pytest runs them here too
    started,
    test_a_second_producer_fences_the_first,
    test_a_transaction_over_topics_and_nothing_at_all,
    test_a_transaction_that_takes_too_long_is_aborted,
    test_aiokafka,
    test_an_administrator_fences_a_producer,
    test_kafka_python,
    test_offsets_move_with_the_transaction,
    test_what_is_committed_is_read_and_nothing_else,
    topic,
)
from tests.support.copying import BATCH, copy_while_they_are_killed, has_copied
from tests.support.other_clients import franz_go_copier
from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import Copier, ProcessCopier, values
from tests.support.wire_client import ask

pytestmark = pytest.mark.timeout(600)

API_VERSIONS = 18
MILLION = 1_000_000
CLIENT = {"client_software_name": "test", "client_software_version": "1"}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    for cluster in started(tmp_path_factory.mktemp("version-2") / "cluster"):
        finalize(cluster)
        yield cluster


@pytest.fixture
def own_yard(tmp_path: Path) -> Iterator[RealCluster]:
    """The same, to be killed at will."""
    for cluster in started(tmp_path / "cluster"):
        finalize(cluster)
        yield cluster


def finalize(cluster: RealCluster, level: int = 2) -> None:
    """By our command; returns when every broker tells it."""
    words = [
        "features",
        "upgrade",
        "--bootstrap-server",
        cluster.bootstrap,
        "--feature",
        f"transaction.version={level}",
    ]
    assert main(words) == 0
    for address in cluster.bootstrap.split(","):
        eventually(lambda address=address: told(address) == {"transaction.version": level}, f"{address} knows it", 30)


def told(address: str) -> dict[str, int]:
    return {one.name: one.max_version_level for one in ask(address, API_VERSIONS, 3, CLIENT).finalized_features}


def test_franz_go_copies(yard: RealCluster) -> None:
    """The short path of what follows: nobody is killed."""
    for name in ("source", "target"):
        yard.create(name, 4, 3, min_insync_replicas="2")
    sent = [(str(n).encode(), f"value-{n}".encode()) for n in range(2_000)]
    yard.produce("source", sent)
    copier = ProcessCopier(franz_go_copier(yard.bootstrap, "source", "target", BATCH))
    copier.start()
    try:
        eventually(lambda: has_copied(yard, len(sent)), "all is copied", 60)
    finally:
        copier.stop()
        print("\n".join(copier.log))
    assert values(yard.bootstrap, "target") == Counter(value for _, value in sent)


@pytest.mark.long
def test_a_copy_is_exactly_once_whoever_is_killed(own_yard: RealCluster) -> None:
    copy_while_they_are_killed(own_yard, Copier(own_yard.bootstrap, "source", "target", batch=BATCH))


@pytest.mark.long
def test_franz_go_copies_exactly_once_whoever_is_killed(own_yard: RealCluster) -> None:
    command = franz_go_copier(own_yard.bootstrap, "source", "target", BATCH)
    copy_while_they_are_killed(own_yard, ProcessCopier(command))


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_a_million_records_are_copied_exactly_once(own_yard: RealCluster) -> None:
    command = franz_go_copier(own_yard.bootstrap, "source", "target", MILLION // 100)
    copy_while_they_are_killed(own_yard, ProcessCopier(command), count=MILLION)


def test_the_command_shows_and_changes_levels(own_yard: RealCluster, capsys: pytest.CaptureFixture[str]) -> None:
    to = ["--bootstrap-server", own_yard.bootstrap]
    capsys.readouterr()
    assert main(["features", "describe", *to]) == 0
    line = "Feature: transaction.version\tSupportedMinVersion: 1\tSupportedMaxVersion: 2\tFinalizedVersionLevel: "
    assert capsys.readouterr().out.startswith(f"{line}2\tEpoch: ")
    assert main(["features", "upgrade", *to, "--feature", "transaction.version=3", "--dry-run"]) == 1
    assert "Can not upgrade transaction.version to 3." in capsys.readouterr().out
    assert main(["features", "downgrade", *to, "--feature", "transaction.version=0"]) == 0
    assert capsys.readouterr().out == "transaction.version was downgraded to 0.\n"
    for address in own_yard.bootstrap.split(","):
        eventually(lambda address=address: told(address) == {}, f"{address} knows it", 30)
