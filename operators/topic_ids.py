"""Which topics records were read of: a topic that was made anew has other records at the offsets that were read."""

from collections.abc import Callable, Mapping, Sequence

from logyard.admin.errors import ApiError
from logyard.admin.ports import ClusterClient, ClusterUnreachable
from logyard.admin.topics.changes import TopicConflict
from logyard.operators.hooks.cluster import ClusterHook

_PATIENCE_S = 5.0


def ids_of(hook: ClusterHook, topics: Sequence[str], warn: Callable[..., None]) -> dict[str, str]:
    """The topics' ids, for whoever commits later; without those that nobody tells."""
    if not topics:
        return {}
    try:
        with hook.client(_PATIENCE_S) as client:
            seen = client.witnessed(topics).topics
    except (ApiError, ClusterUnreachable) as problem:
        warn("the ids of the topics are not known (%s)", problem)
        return {}
    return {name: view.topic_id for name, view in seen.items() if view.topic_id is not None}


def refuse_made_anew(client: ClusterClient, group: str, read: Mapping[str, str]) -> None:
    """Raise TopicConflict where a topic is not the one, by its id, that was read: `read` is topic → id."""
    seen = client.witnessed(sorted(read)).topics if read else {}
    others = [name for name in sorted(read) if name in seen and seen[name].topic_id not in (None, read[name])]
    if others:
        raise TopicConflict(
            f"group {group}: topic {others[0]} was made anew since its records were read: nothing is committed, and "
            "another run reads what it has now"
        )
