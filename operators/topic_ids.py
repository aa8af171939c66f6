"""Where records were read: offsets say nothing of another cluster, nor of a topic that was made anew since; and what
the controller knows of a topic, of which another broker may not have heard all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from logyard.admin.cluster.identity import led_elsewhere
from logyard.admin.cluster.snapshot import TopicView
from logyard.admin.errors import ApiError
from logyard.admin.ports import ClusterClient, ClusterUnreachable
from logyard.admin.topics.changes import TopicConflict
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.hooks.records import chosen

_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Origin:
    """The cluster that records were read in (empty: not known), and the ids of their topics, where they are known."""

    cluster_id: str
    topic_ids: Mapping[str, str]

    def refuse_another(self, client: ClusterClient, group: str) -> None:
        """Raise TopicConflict where the client's cluster, or a topic there, is another one than was read."""
        found = client.snapshot([]).cluster_id if self.cluster_id else ""
        if edited := led_elsewhere(self.cluster_id, found, "when its records were read"):
            raise TopicConflict(f"group {group}: {edited}: nothing is committed")
        refuse_made_anew(client, group, self.topic_ids)


def partitions_told(hook: ClusterHook, topic: str, warn: Callable[..., None]) -> int:
    """How many partitions of the topic the controller's broker knows; 0 where nobody tells."""

    def say(problem: Exception) -> None:
        warn("topic %s has the partitions that one broker knows: the controller does not tell (%s)", topic, problem)

    found = _witnessed(hook, [topic], say).get(topic)
    return 0 if found is None else len(found.partitions)


def told_of(hook: ClusterHook, topics: Sequence[str], warn: Callable[..., None]) -> Mapping[str, TopicView]:
    """The topics that are named, or that a `^…` means, as the controller's broker knows them; none where nobody tells.

    Raises BadSettings (no expression).
    """

    def say(problem: Exception) -> None:
        warn(
            "%s: read is what one broker knows of, and whether a topic is made anew meanwhile is not known: the "
            "controller does not tell (%s)",
            ", ".join(topics),
            problem,
        )

    is_meant = chosen(topics)
    names = None if any(name.startswith("^") for name in topics) else topics
    return {name: view for name, view in _witnessed(hook, names, say).items() if is_meant(name)}


def _witnessed(
    hook: ClusterHook, topics: Sequence[str] | None, say: Callable[[Exception], None]
) -> Mapping[str, TopicView]:
    """These topics (None: all) as the controller's broker knows them; none where nobody tells, and `say` why."""
    try:
        with hook.client(_PATIENCE_S) as client:
            return client.witnessed(topics).topics
    except (ApiError, ClusterUnreachable) as problem:
        say(problem)
        return {}


def made_anew(client: ClusterClient, known: Mapping[str, str]) -> list[str]:
    """The topics that are other ones now, by their ids, than those of `known`: topic → id."""
    seen = client.witnessed(sorted(known)).topics if known else {}
    return [name for name in sorted(known) if name in seen and seen[name].topic_id not in (None, known[name])]


def surely_same(hook: ClusterHook, known: Mapping[str, str], warn: Callable[..., None]) -> set[str]:
    """Those topics of `known` (topic → id) of which it is told that they are not made anew; none where nobody tells."""
    try:
        with hook.client(_PATIENCE_S) as client:
            return set(known) - set(made_anew(client, known))
    except (ApiError, ClusterUnreachable) as problem:
        warn("whether topics were made anew since an earlier try is not known (%s): they are worked on again", problem)
        return set()


def refuse_made_anew(client: ClusterClient, group: str, read: Mapping[str, str]) -> None:
    """Raise TopicConflict where a topic is not the one, by its id, that was read: `read` is topic → id."""
    if others := made_anew(client, read):
        raise TopicConflict(
            f"group {group}: topic {others[0]} was made anew since its records were read: nothing is committed, and "
            "another run reads what it has now"
        )
