"""The controller's metrics, counted from its memory when they are scraped (facts §20), in one pass over the
partitions, with turns for others: a pass over a million takes a second."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from logyard.broker.controller.context import ControllerContext, Partition, ReplicaPhase
from logyard.broker.portions import portions

_SUCCESSFUL, _INELIGIBLE = ReplicaPhase.DELETION_SUCCESSFUL, ReplicaPhase.DELETION_INELIGIBLE


class Gauges:
    """Keeps the last counts until an event is handled, so that scrapes of an idle controller of 200,000 partitions are
    free."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._counted: dict[str, int] | None = None
        self._events = 0

    async def now(self) -> dict[str, int]:
        """Return the counts. What an event changes while they are taken is counted when they are asked for again."""
        if self._counted is not None:
            return self._counted
        events = self._events
        counted = await read(self._context)
        if events == self._events:
            self._counted = counted
        return counted

    def forget(self) -> None:
        """An event was handled."""
        self._events += 1
        self._counted = None


async def read(context: ControllerContext) -> dict[str, int]:
    """Return Kafka's controller gauges by name; all are 0 while this broker is not controller."""
    counted = Counter[str]()
    async for partitions in portions(_all(context)):
        counted.update(_count(context, partitions))
    return {
        "ActiveControllerCount": int(context.is_active),
        "ActiveBrokerCount": len(context.live_ids()),
        "OfflinePartitionsCount": counted["offline"],
        "PreferredReplicaImbalanceCount": counted["imbalanced"],
        "GlobalTopicCount": len(context.topics),
        "GlobalPartitionCount": counted["partitions"],
        "TopicsToDeleteCount": len(context.deleting),
        "ReplicasToDeleteCount": counted["to_delete"],
        "TopicsIneligibleToDeleteCount": len(context.deletion_ineligible),
        "ReplicasIneligibleToDeleteCount": counted["ineligible"],
        "ReassigningPartitions": len(context.reassigning),
    }


def _all(context: ControllerContext) -> Iterator[tuple[bool, Partition]]:
    """All partitions, and whether their topic is being deleted."""
    for topic in list(context.topics.values()):
        doomed = context.is_deleting(topic.name)
        for partition in list(topic.partitions.values()):
            yield doomed, partition


def _count(context: ControllerContext, partitions: Sequence[tuple[bool, Partition]]) -> Mapping[str, int]:
    offline = imbalanced = to_delete = ineligible = 0
    for doomed, partition in partitions:
        if doomed:
            to_delete += sum(partition.replica_phase(r) is not _SUCCESSFUL for r in partition.assignment.replicas)
            ineligible += sum(phase is _INELIGIBLE for phase in partition.replicas.values())
        else:
            offline += partition.state is None or not context.is_online(partition.state.leader, partition.tp)
            imbalanced += _is_led_elsewhere(partition)
    counts = {"offline": offline, "imbalanced": imbalanced, "to_delete": to_delete, "ineligible": ineligible}
    return {"partitions": len(partitions), **counts}


def _is_led_elsewhere(partition: Partition) -> bool:
    state, replicas = partition.state, partition.assignment.replicas
    return state is not None and bool(replicas) and state.leader != replicas[0]
