"""Plans that one task makes and another one carries out, perhaps a day later: on the cluster that they are of."""

from collections.abc import Mapping
from typing import Any

from logyard.admin.settings import BadSettings


def refuse_another_cluster(plan: Mapping[str, Any], cluster_id: str, advice: str = "plan again") -> None:
    """Raise BadSettings where the plan's `cluster_id` is another one: the connection was edited since.

    Plans and clusters without an id pass.
    """
    planned = plan.get("cluster_id")
    if planned and cluster_id and planned != cluster_id:
        raise BadSettings(
            f"the connection led to cluster {planned} when the plan was made, and leads to {cluster_id} now: nothing "
            f"is changed; {advice}"
        )
