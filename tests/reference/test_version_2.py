"""`transaction.version` 2 with Java's client of Kafka 4, with Kafka's tool, and beside brokers of Kafka 3.9."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from logyard.cli import options
from logyard.cli.main import main
from logyard.local.errors import LocalError
from tests.integration.test_transactions import TRANSACTIONS
from tests.integration.test_transactions_version_2 import finalize, told
from tests.support import kafka
from tests.support.copying import BATCH, copy_while_they_are_killed
from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import ProcessCopier

pytestmark = pytest.mark.timeout(900)
HERE = Path(__file__).resolve().parent


@pytest.fixture
def own_yard(tmp_path: Path) -> Iterator[RealCluster]:
    with kafka.running(tmp_path / "cluster", "OOO", TRANSACTIONS) as cluster:
        yield cluster


def java_4_copier(bootstrap: str) -> ProcessCopier:
    jars = kafka.jars_or_skip("java4")
    program = [str(HERE / "TransactionalCopier.java"), bootstrap, "source", "target", str(BATCH)]
    return ProcessCopier([shutil.which("java") or "java", "-Xmx256m", "-cp", f"{jars}/*", *program])


@pytest.mark.parametrize("level", [0, 2])
def test_java_copies_exactly_once_whoever_is_killed(own_yard: RealCluster, level: int) -> None:
    """The client of Kafka 4 by either protocol: it looks at the finalized level."""
    if level:
        finalize(own_yard, level)
    copier = java_4_copier(own_yard.bootstrap)
    copy_while_they_are_killed(own_yard, copier)
    with options.requests(own_yard.bootstrap, None) as sender:
        described = sender.describe_transaction("copier-source")
    assert described is not None
    assert (described.producer_epoch >= copier.transactions // 2) is (level == 2), (described, copier.log[-20:])


def test_kafkas_tool_says_what_ours_says(own_yard: RealCluster, capsys: pytest.CaptureFixture[str]) -> None:
    to = ["--bootstrap-server", own_yard.bootstrap]
    for verb, level in (("upgrade", "2"), ("upgrade", "2"), ("downgrade", "0"), ("upgrade", "1")):
        words = [verb, "--feature", f"transaction.version={level}"]
        theirs = kafka.tool("features", *to, *words, "--dry-run", check=False)
        main(["features", *words[:1], *to, *words[1:], "--dry-run"])
        captured = capsys.readouterr()
        assert [line for line in captured.out.splitlines() if line] == theirs.splitlines()[:1]
        kafka.tool("features", *to, *words, check=False)
        assert captured.err.count("failed.") == theirs.count("operation(s) failed.")
    main(["features", "describe", *to])
    ours = capsys.readouterr().out.strip()
    assert ours == kafka.tool("features", *to, "describe").strip()
    assert "FinalizedVersionLevel: 1" in ours


def test_a_broker_of_kafka_3_9_and_version_2_exclude_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "cluster"
    with kafka.running(directory, "OOK", TRANSACTIONS) as cluster:
        to = ["--bootstrap-server", cluster.bootstrap]
        words = ["features", "upgrade", *to, "--feature", "transaction.version=2"]
        assert main(words) == 1
        assert "because brokers do not support transaction.version 2: 2." in capsys.readouterr().out
        kafka.kinds_file(directory).write_text("OOO")
        cluster.cluster.stop_broker(2)
        cluster.cluster.start_broker(2)
        eventually(lambda: len(cluster.admin().list_topics(timeout=10).brokers) == 3, "all are ours", 60)
        finalize(cluster)
        # A broker of Kafka that comes back ends itself, and the others go on.
        cluster.cluster.stop_broker(2)
        kafka.kinds_file(directory).write_text("OOK")
        with pytest.raises(LocalError):
            cluster.cluster.start_broker(2)
        assert len(cluster.admin().list_topics(timeout=10).brokers) == 2
        assert told(cluster.bootstrap.split(",")[0]) == {"transaction.version": 2}
