"""Requests about groups that have no method in `ports.ClusterClient`; sent by `cluster/requests.py`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from logyard.admin.cluster import translation
from logyard.admin.groups.groups import DEAD, Group, GroupListing, Member
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import TopicPartition
from logyard.login.meanings import meaning

# Kafka's tool shows groups of consumers, and groups that only committed offsets.
_CONSUMERS = ("consumer", "")


class GroupSender(Protocol):
    """The part of `requests.ClusterRequests` that is used."""

    def ask(
        self, make: Callable[[], Any], node: int | None = None, codes: Callable[[Any], Sequence[int]] | None = None
    ) -> Any: ...

    def ask_coordinator(self, group: str, make: Callable[[], Any], codes: Callable[[Any], Sequence[int]]) -> Any: ...

    def coordinator(self, group: str) -> tuple[int, str]: ...

    def live_brokers(self) -> list[int]: ...


def list_groups(sender: GroupSender, states: Sequence[str] = ()) -> list[GroupListing]:
    """Every consumer group, or those in these states, by name. Raises ApiError, ClusterUnreachable."""
    from kafka.protocol.admin import ListGroupsRequest

    found = {}
    for broker in sender.live_brokers():
        answer = sender.ask(partial(ListGroupsRequest, states_filter=list(states)), broker, lambda a: [a.error_code])
        translation.refuse(answer.error_code, None)
        for one in answer.groups:
            if one.protocol_type in _CONSUMERS:
                kind = getattr(one, "group_type", None) or "classic"
                state = getattr(one, "group_state", None) or "Unknown"
                found[one.group_id] = GroupListing(one.group_id, kind.capitalize(), state)
    return [found[name] for name in sorted(found) if not states or found[name].state in states]


def describe(sender: GroupSender, name: str) -> Group:
    """One group; one that does not exist is Dead. Raises ApiError, ClusterUnreachable."""
    from kafka.protocol.admin import DescribeGroupsRequest

    answer = sender.ask_coordinator(
        name, lambda: DescribeGroupsRequest(groups=[name]), lambda a: [one.error_code for one in a.groups]
    )
    found = answer.groups[0]
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return Group(name, DEAD)
    translation.refuse(found.error_code, f"group {name}: {meaning(found.error_code)}")
    node, address = sender.coordinator(name)
    return Group(
        name=name,
        state=found.group_state,
        members=tuple(_member(one) for one in found.members),
        assignor=found.protocol_data,
        coordinator=address,
        coordinator_id=node,
    )


def delete(sender: GroupSender, name: str) -> ApiError | None:
    """Delete an empty group; returns the error, or None."""
    from kafka.protocol.admin import DeleteGroupsRequest

    answer = sender.ask_coordinator(
        name, lambda: DeleteGroupsRequest(groups_names=[name]), lambda a: [one.error_code for one in a.results]
    )
    return translation.problem(answer.results[0].error_code, None)


def delete_offsets(
    sender: GroupSender, name: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, ApiError | None]:
    """Delete a group's committed offsets of these partitions. Raises ApiError if none can be deleted."""
    from kafka.protocol.consumer import OffsetDeleteRequest

    topics: dict[str, list[tuple[int]]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append((tp.partition,))
    answer = sender.ask_coordinator(
        name,
        lambda: OffsetDeleteRequest(group_id=name, topics=list(topics.items())),
        lambda a: [a.error_code],
    )
    translation.refuse(answer.error_code, f"group {name}: {meaning(answer.error_code)}")
    return {
        TopicPartition(topic.name, one.partition_index): translation.problem(one.error_code, None)
        for topic in answer.topics
        for one in topic.partitions
    }


def _member(found: Any) -> Member:
    return Member(
        consumer_id=found.member_id,
        client_id=found.client_id,
        host=found.client_host,
        instance_id=getattr(found, "group_instance_id", None) or "",
        partitions=_assigned(bytes(found.member_assignment or b"")),
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Read a member's assignment; one that is not of the consumer protocol has no partitions."""
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    if not data:
        return ()
    try:
        assignment = ConsumerProtocolAssignment.decode(data)
    except Exception:  # written by the group's leader, in a format of its own
        return ()
    return tuple(TopicPartition(t.topic, p) for t in assignment.assigned_partitions for p in t.partitions)
