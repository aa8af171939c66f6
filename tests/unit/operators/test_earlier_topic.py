"""What a task's tries keep of a topic: nothing of it holds in another cluster."""

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.ports import ClusterUnreachable
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.topics import CreateTopicOperator, DeleteTopicOperator
from tests.support.airflow_tasks import Store, context, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow


def test_a_retry_of_a_deletion_in_another_cluster_does_not_say_that_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection was edited between the tries."""
    cluster, other = (MemoryCluster({1: None, 2: None, 3: None}, cluster_id=name) for name in ("one", "other"))
    use(monkeypatch, cluster)
    run(CreateTopicOperator(task_id="c", topic="t", poll_interval_s=0.01), context())
    operator, store = DeleteTopicOperator(task_id="d", topic="t"), Store()

    def unanswered(*_: object) -> None:
        raise ClusterUnreachable("the cluster did not answer: no answer in time")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryClient, "delete_topic", unanswered)
        with pytest.raises(ClusterUnreachable):
            operator.execute(context(store))
    use(monkeypatch, other)
    run(CreateTopicOperator(task_id="c", topic="t", poll_interval_s=0.01), context())
    with pytest.raises(AirflowFailException, match="led to cluster one at the first try, and leads to other now"):
        run(operator, context(store))
    cleared = context(store)
    cleared["ti"].max_tries = 1
    assert run(operator, cleared)[0]["deleted"] is True
    assert ("t" in cluster.configs, "t" in other.configs) == (True, False)
