"""The controller's metrics, counted from its memory when they are scraped (facts §20), in one pass over the
partitions."""

from logyard.broker.controller.context import ControllerContext, Partition, ReplicaPhase

_SUCCESSFUL, _INELIGIBLE = ReplicaPhase.DELETION_SUCCESSFUL, ReplicaPhase.DELETION_INELIGIBLE


class Gauges:
    """Keeps the last counts until an event is handled, so that scrapes of an idle controller of 200,000 partitions are
    free."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._counted: dict[str, int] | None = None

    def now(self) -> dict[str, int]:
        if self._counted is None:
            self._counted = read(self._context)
        return self._counted

    def forget(self) -> None:
        self._counted = None


def read(context: ControllerContext) -> dict[str, int]:
    """Return Kafka's controller gauges by name; all are 0 while this broker is not controller."""
    partitions = offline = imbalanced = to_delete = ineligible = 0
    for topic in context.topics.values():
        partitions += len(topic.partitions)
        doomed = context.is_deleting(topic.name)
        for partition in topic.partitions.values():
            if doomed:
                to_delete += sum(partition.replica_phase(r) is not _SUCCESSFUL for r in partition.assignment.replicas)
                ineligible += sum(phase is _INELIGIBLE for phase in partition.replicas.values())
            else:
                offline += partition.state is None or not context.is_online(partition.state.leader, partition.tp)
                imbalanced += _is_led_elsewhere(partition)
    return {
        "ActiveControllerCount": int(context.is_active),
        "ActiveBrokerCount": len(context.live_ids()),
        "OfflinePartitionsCount": offline,
        "PreferredReplicaImbalanceCount": imbalanced,
        "GlobalTopicCount": len(context.topics),
        "GlobalPartitionCount": partitions,
        "TopicsToDeleteCount": len(context.deleting),
        "ReplicasToDeleteCount": to_delete,
        "TopicsIneligibleToDeleteCount": len(context.deletion_ineligible),
        "ReplicasIneligibleToDeleteCount": ineligible,
        "ReassigningPartitions": len(context.reassigning),
    }


def _is_led_elsewhere(partition: Partition) -> bool:
    state, replicas = partition.state, partition.assignment.replicas
    return state is not None and bool(replicas) and state.leader != replicas[0]
