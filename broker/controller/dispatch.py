"""The procedure for each event, and the state that Kafka's ControllerState gauge shows meanwhile.

Rule: one event, one entry point. Events that are not in `HANDLERS` are handled by the runner itself.
"""

from collections.abc import Callable, Mapping
from typing import Any

from logyard.broker.controller import brokers, controlled_shutdown, effects, events, features, producer_ids
from logyard.broker.controller.context import ControllerContext
from logyard.broker.controller.effects import Steps
from logyard.broker.controller.failover import controller_election, lifecycle
from logyard.broker.controller.partitions import isr, reassignment, requested_elections
from logyard.broker.controller.topics import creation, deletion, topics
from logyard.broker.errors import ErrorCode

Handler = Callable[[ControllerContext, Any], Steps[Any]]

# Handled whether or not this broker is controller.
ALWAYS: Mapping[type, Handler] = {
    events.Started: lambda c, e: lifecycle.stand(c),
    events.SessionRestored: lambda c, e: lifecycle.stand(c),
    events.ControllerChanged: lambda c, e: lifecycle.on_controller_changed(c),
}

# Handled by the controller only.
HANDLERS: Mapping[type, Handler] = {
    events.BrokersChanged: lambda c, e: brokers.on_brokers_changed(c),
    events.BrokerModified: lambda c, e: brokers.on_broker_modified(c, e.broker_id),
    events.TopicsChanged: lambda c, e: _on_topics_changed(c),
    events.PartitionsChanged: lambda c, e: _on_partitions_changed(c, e.topic),
    events.DeletionRequested: lambda c, e: deletion.on_requested(c),
    events.LogDirsFailed: lambda c, e: brokers.on_log_dirs_failed(c),
    events.IsrsChanged: lambda c, e: isr.on_notified(c),
    events.ReassignmentRequested: lambda c, e: reassignment.on_requested(c),
    events.ReassigningStateChanged: lambda c, e: reassignment.on_state_changed(c, e.tp),
    events.PreferredElectionRequested: lambda c, e: requested_elections.on_preferred_requested(c),
    events.LeaderAndIsrAnswered: brokers.on_leader_and_isr_answered,
    events.UpdateMetadataAnswered: lambda c, e: _on_update_metadata_answered(c, e),
    events.ReplicasDeleted: deletion.on_replicas_deleted,
    events.LeadersImbalanceDue: lambda c, e: requested_elections.on_imbalance_due(c),
    events.DeletionRetryDue: lambda c, e: deletion.on_retry_due(c, e.topics),
    events.UncleanElectionEnabled: lambda c, e: requested_elections.on_unclean_enabled(c, e.topic),
    events.CreateTopics: creation.on_create_topics,
    events.CreatePartitions: creation.on_create_partitions,
    events.DeleteTopics: deletion.on_delete_topics,
    events.ElectLeaders: requested_elections.on_elect,
    events.AlterReassignments: reassignment.on_alter,
    events.ListReassignments: reassignment.on_list,
    events.AlterPartition: isr.on_alter,
    events.AllocateProducerIds: producer_ids.on_request,
    events.UpdateFeatures: features.on_update,
    events.ControlledShutdown: controlled_shutdown.on_request,
}

# Kafka's numbers (facts §3); during an event that is not listed the gauge stays at 0, idle.
STATES: Mapping[type, int] = {
    events.Started: 1,
    events.SessionRestored: 1,
    events.ControllerChanged: 1,
    events.BrokersChanged: 2,
    events.BrokerModified: 2,
    events.TopicsChanged: 3,
    events.PartitionsChanged: 3,
    events.CreateTopics: 3,
    events.CreatePartitions: 3,
    events.DeletionRequested: 4,
    events.DeleteTopics: 4,
    events.ReplicasDeleted: 4,
    events.DeletionRetryDue: 4,
    events.ReassignmentRequested: 5,
    events.ReassigningStateChanged: 5,
    events.AlterReassignments: 5,
    events.LeadersImbalanceDue: 6,
    events.PreferredElectionRequested: 7,
    events.ElectLeaders: 7,
    events.ControlledShutdown: 8,
    events.IsrsChanged: 9,
    events.AlterPartition: 9,
    events.LeaderAndIsrAnswered: 10,
    events.LogDirsFailed: 11,
    events.UncleanElectionEnabled: 13,
    events.ListReassignments: 15,
    events.UpdateMetadataAnswered: 16,
    events.UpdateFeatures: 17,
}


def state_of(event: events.Event) -> int:
    """Return the gauge's value while an event is handled; the unclean election of one topic has its own."""
    if isinstance(event, events.UncleanElectionEnabled) and event.topic is not None:
        return 14
    return STATES.get(type(event), 0)


def _on_topics_changed(context: ControllerContext) -> Steps[None]:
    vanished, moving = yield from topics.on_topics_changed(context)
    if vanished:
        # Someone removed the znode of a topic under deletion; the rest of it is removed too.
        yield from deletion.resume(context)
    yield from reassignment.take_up(context, moving)


def _on_partitions_changed(context: ControllerContext, topic: str) -> Steps[None]:
    moves = yield from topics.on_partitions_changed(context, topic)
    yield from reassignment.on_written(context, moves)


def _on_update_metadata_answered(context: ControllerContext, event: events.UpdateMetadataAnswered) -> Steps[None]:
    if event.error is ErrorCode.STALE_CONTROLLER_EPOCH:
        yield from controller_election.outdo(context, event.broker_id)
    yield from effects.note("UpdateMetadata was refused", level="error", broker=event.broker_id, error=event.error.name)
