"""Leaders: give partitions back to their preferred leaders, or (unclean) to whoever is alive."""

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from logyard.admin.errors import ApiError, ErrorCode
from logyard.operators.base import ClusterOperator, as_list
from logyard.operators.reassignment import elect_preferred
from logyard.operators.triggers.cluster import some


class ElectLeadersOperator(ClusterOperator):
    """Elect the preferred leader of every partition that another replica leads.

    :param topics: topics, a list or its JSON; all of them where empty. (templated)
    :param unclean: instead, give leaderless partitions to any live replica. Records may be lost.
    """

    template_fields = ("topics", "logyard_conn_id")

    def __init__(self, *, topics: Sequence[str] | str | None = None, unclean: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topics = topics
        self.unclean = unclean

    def execute(self, context: Context) -> dict[str, Any]:
        topics = [str(topic) for topic in as_list("topics", self.topics)] or None
        hook = self.hook
        with hook.client() as client:
            before = client.snapshot(topics)
            if self.unclean:
                wanted = before.unled(topics)
                answers = client.elect_leaders(wanted, unclean=True) if wanted else {}
                for tp, refusal in answers.items():
                    if refusal is not None and refusal.code is not ErrorCode.ELECTION_NOT_NEEDED:
                        raise ApiError(refusal.code, f"{tp}: {refusal}")
                elected = wanted
            else:
                elected = elect_preferred(client, hook.pause(), before.not_preferred(topics))
        self.log.info("%d leaders elected: %s", len(elected), some(elected) or "none was needed")
        return {"elected": [str(tp) for tp in elected]}
