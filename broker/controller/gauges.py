"""The controller's metrics, counted from its memory when they are scraped (facts §20)."""

from logyard.broker.controller import leadership
from logyard.broker.controller.context import ControllerContext, ReplicaPhase


def read(context: ControllerContext) -> dict[str, int]:
    """Return Kafka's controller gauges by name; all are 0 while this broker is not controller."""
    living = [p for p in context.partitions() if not context.is_deleting(p.tp.topic)]
    doomed = [p for p in context.partitions() if context.is_deleting(p.tp.topic)]
    return {
        "ActiveControllerCount": int(context.is_active),
        "ActiveBrokerCount": len(context.live_ids()),
        "OfflinePartitionsCount": sum(
            1 for p in living if p.state is None or not context.is_online(p.state.leader, p.tp)
        ),
        "PreferredReplicaImbalanceCount": leadership.imbalance(context),
        "GlobalTopicCount": len(context.topics),
        "GlobalPartitionCount": len(living) + len(doomed),
        "TopicsToDeleteCount": len(context.deleting),
        "ReplicasToDeleteCount": sum(
            1
            for p in doomed
            for r in p.assignment.replicas
            if p.replica_phase(r) is not ReplicaPhase.DELETION_SUCCESSFUL
        ),
        "TopicsIneligibleToDeleteCount": len(context.deletion_ineligible),
        "ReplicasIneligibleToDeleteCount": sum(
            1 for p in doomed for phase in p.replicas.values() if phase is ReplicaPhase.DELETION_INELIGIBLE
        ),
        "ReassigningPartitions": len(context.reassigning),
    }
