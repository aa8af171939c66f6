"""Controlled shutdown: before a broker exits, its leaderships move to other brokers.

Rule 1: only partitions with more than one replica, a state, and a topic that is not being deleted are touched.
Rule 2: a partition it leads goes to another in-sync replica; where it follows, its replica is stopped and leaves the
ISR.
Rule 3: the answer names the partitions it still leads; the broker asks again, or gives up and exits.
"""

from logyard.broker.controller import effects
from logyard.broker.controller.broker_requests import sending
from logyard.broker.controller.broker_requests.batch import RequestBatch
from logyard.broker.controller.context import ControllerContext, Partition, PartitionPhase, ReplicaPhase
from logyard.broker.controller.effects import Answer, Steps
from logyard.broker.controller.events import ControlledShutdown, ShutdownResult
from logyard.broker.controller.partitions import partition_machine, replica_machine
from logyard.broker.controller.partitions.leader_election import Strategy
from logyard.broker.errors import ErrorCode
from logyard.broker.model import NO_EPOCH


def on_request(context: ControllerContext, request: ControlledShutdown) -> Steps[None]:
    """Answer ControlledShutdown."""
    error = _check(context, request)
    if error is not ErrorCode.NONE:
        yield from effects.perform(Answer(ShutdownResult(error)))
        return
    broker = request.broker_id
    context.shutting_down.add(broker)
    movable = yield from effects.picked(context.partitions(), lambda p: _movable(context, p, broker))
    led = [p for p in movable if p.leader == broker]
    followed = [p for p in movable if p.leader != broker]
    yield from effects.note("a broker shuts down", broker=broker, leads=len(led), follows=len(followed))
    yield from partition_machine.change(context, led, PartitionPhase.ONLINE, Strategy.SHUTDOWN)
    batch = RequestBatch(context)
    for number, partition in enumerate(followed, 1):
        batch.stop_replica(broker, partition, delete=False)
        yield from effects.done(number)
    yield from sending.send(batch)
    yield from replica_machine.change(context, [(p, broker) for p in followed], ReplicaPhase.OFFLINE)
    remaining = yield from effects.picked(movable, lambda p: p.leader == broker)
    yield from effects.perform(Answer(ShutdownResult(remaining=tuple(sorted(p.tp for p in remaining)))))


def _check(context: ControllerContext, request: ControlledShutdown) -> ErrorCode:
    """The errors of facts §8; an unknown broker that sends an epoch gets UNKNOWN_SERVER_ERROR, as in Kafka."""
    broker = context.brokers.get(request.broker_id)
    if broker is None:
        return ErrorCode.BROKER_NOT_AVAILABLE if request.broker_epoch == NO_EPOCH else ErrorCode.UNKNOWN_SERVER_ERROR
    if request.broker_epoch != NO_EPOCH and request.broker_epoch < broker.epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def _movable(context: ControllerContext, partition: Partition, broker: int) -> bool:
    return (
        broker in partition.assignment.replicas
        and len(partition.assignment.replicas) > 1
        and partition.state is not None
        and not context.is_deleting(partition.tp.topic)
    )
