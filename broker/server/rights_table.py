"""Which rights each API needs: the table of facts §18.5, a row an API. An API without a row is not served.

`whole` is asked before the handler is called, in its order; a refusal is told in the API's form for errors. What a
handler asks for each part has a field of its own, and the handler says where its order differs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from logyard.broker.errors import ErrorCode
from logyard.broker.znodes.acls import Operation as Op
from logyard.broker.znodes.acls import ResourceType

LAST_VERSION = 1 << 15


class Need(NamedTuple):
    """An operation on a resource of a type, and the error for who may not do it."""

    operation: Op
    resource: ResourceType
    refusal: ErrorCode


class Whole(NamedTuple):
    """What a whole request needs: one of `needs`, in some versions; `of` is its field with the resource's name."""

    needs: tuple[Need, ...]
    of: str = ""
    versions: tuple[int, int] = (0, LAST_VERSION)


@dataclass(frozen=True, slots=True)
class Row:
    """The rights of one API. `controller_first`: a broker that is not controller answers NOT_CONTROLLER before."""

    whole: tuple[Whole, ...] = ()
    topic: Need | None = None
    group: Need | None = None
    transactional_id: Need | None = None
    cluster: Need | None = None
    """Who has it needs no other right of the row, or only some parts of the request need it."""
    seen: Need | None = None
    """Who does not have it is not told this part of an answer: it is no refusal, and not logged."""
    user: Need | None = None
    token: Need | None = None
    controller_first: bool = False


def _topic(operation: Op) -> Need:
    return Need(operation, ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _group(operation: Op) -> Need:
    return Need(operation, ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED)


def _transactional_id(operation: Op) -> Need:
    return Need(operation, ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _cluster(operation: Op) -> Need:
    return Need(operation, ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _token_of(operation: Op, resource: ResourceType) -> Need:
    return Need(operation, resource, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)


_CLUSTER_ACTION = Whole((_cluster(Op.CLUSTER_ACTION),))
_ALTER_CLUSTER = Whole((_cluster(Op.ALTER),))
_DESCRIBE_CLUSTER = Whole((_cluster(Op.DESCRIBE),))
_READ_GROUP = Whole((_group(Op.READ),), of="group_id")
_WRITE_ID = Whole((_transactional_id(Op.WRITE),), of="transactional_id")
_BETWEEN_BROKERS = Row(whole=(_CLUSTER_ACTION,))
_NONE = Row()

RIGHTS: Final[Mapping[int, Row]] = MappingProxyType(
    {
        0: Row(topic=_topic(Op.WRITE), transactional_id=_transactional_id(Op.WRITE)),
        1: Row(topic=_topic(Op.READ), cluster=_cluster(Op.CLUSTER_ACTION)),
        2: Row(topic=_topic(Op.DESCRIBE)),
        3: Row(topic=_topic(Op.DESCRIBE), cluster=_cluster(Op.CREATE), seen=_topic(Op.CREATE)),
        4: _BETWEEN_BROKERS,
        5: _BETWEEN_BROKERS,
        6: _BETWEEN_BROKERS,
        7: _BETWEEN_BROKERS,
        8: Row(whole=(_READ_GROUP,), topic=_topic(Op.READ)),
        9: Row(group=_group(Op.DESCRIBE), topic=_topic(Op.DESCRIBE), seen=_topic(Op.DESCRIBE)),
        10: Row(group=_group(Op.DESCRIBE), transactional_id=_transactional_id(Op.DESCRIBE)),
        11: Row(whole=(_READ_GROUP,)),
        12: Row(whole=(_READ_GROUP,)),
        13: Row(whole=(_READ_GROUP,)),
        14: Row(group=_group(Op.READ)),  # after INCONSISTENT_GROUP_PROTOCOL
        15: Row(group=_group(Op.DESCRIBE)),
        16: Row(cluster=_cluster(Op.DESCRIBE), seen=_group(Op.DESCRIBE)),
        17: _NONE,
        18: _NONE,
        19: Row(
            cluster=_cluster(Op.CREATE),
            topic=_topic(Op.CREATE),
            seen=_topic(Op.DESCRIBE_CONFIGS),
            controller_first=True,
        ),
        20: Row(topic=_topic(Op.DELETE), seen=_topic(Op.DESCRIBE), controller_first=True),
        21: Row(topic=_topic(Op.DELETE)),
        22: Row(transactional_id=_transactional_id(Op.WRITE), cluster=_cluster(Op.IDEMPOTENT_WRITE)),
        23: Row(cluster=_cluster(Op.CLUSTER_ACTION), topic=_topic(Op.DESCRIBE)),
        24: Row(
            whole=(
                Whole((_transactional_id(Op.WRITE),), of="v3_and_below_transactional_id", versions=(0, 3)),
                Whole((_cluster(Op.CLUSTER_ACTION),), versions=(4, LAST_VERSION)),
            ),
            topic=_topic(Op.WRITE),
        ),
        25: Row(whole=(_WRITE_ID, _READ_GROUP)),
        26: Row(whole=(_WRITE_ID,)),
        27: Row(whole=(Whole((_cluster(Op.ALTER), _cluster(Op.CLUSTER_ACTION))),)),
        28: Row(whole=(_WRITE_ID, _READ_GROUP), topic=_topic(Op.READ)),
        29: Row(whole=(_DESCRIBE_CLUSTER,)),
        30: Row(whole=(_ALTER_CLUSTER,)),
        31: Row(whole=(_ALTER_CLUSTER,)),
        32: Row(topic=_topic(Op.DESCRIBE_CONFIGS), cluster=_cluster(Op.DESCRIBE_CONFIGS)),
        33: Row(topic=_topic(Op.ALTER_CONFIGS), cluster=_cluster(Op.ALTER_CONFIGS)),
        34: Row(whole=(_ALTER_CLUSTER,)),
        35: Row(whole=(_DESCRIBE_CLUSTER,)),
        36: _NONE,
        37: Row(topic=_topic(Op.ALTER), controller_first=True),
        38: Row(user=_token_of(Op.CREATE_TOKENS, ResourceType.USER)),  # for another owner
        39: _NONE,  # the owner and the renewers
        40: _NONE,  # the owner and the renewers
        41: Row(
            token=_token_of(Op.DESCRIBE, ResourceType.DELEGATION_TOKEN),  # one of the two, for another's token
            user=_token_of(Op.DESCRIBE_TOKENS, ResourceType.USER),
        ),
        42: Row(group=_group(Op.DELETE)),
        43: Row(whole=(_ALTER_CLUSTER,)),
        44: Row(topic=_topic(Op.ALTER_CONFIGS), cluster=_cluster(Op.ALTER_CONFIGS)),
        45: Row(whole=(_ALTER_CLUSTER,)),
        46: Row(whole=(_DESCRIBE_CLUSTER,)),
        47: Row(whole=(Whole((_group(Op.DELETE),), of="group_id"),), topic=_topic(Op.READ)),
        48: Row(whole=(Whole((_cluster(Op.DESCRIBE_CONFIGS),)),)),
        49: Row(whole=(Whole((_cluster(Op.ALTER_CONFIGS),)),)),
        50: Row(whole=(_DESCRIBE_CLUSTER,)),
        51: Row(whole=(_ALTER_CLUSTER,), controller_first=True),
        56: _BETWEEN_BROKERS,
        57: Row(whole=(_ALTER_CLUSTER,)),
        60: _NONE,
        61: Row(topic=_topic(Op.READ)),  # after INVALID_TOPIC_EXCEPTION
        65: Row(transactional_id=_transactional_id(Op.DESCRIBE), seen=_topic(Op.DESCRIBE)),
        66: Row(seen=_transactional_id(Op.DESCRIBE)),
        67: _BETWEEN_BROKERS,
    }
)

OPERATIONS: Final[Mapping[ResourceType, tuple[Op, ...]]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            Op.READ,
            Op.WRITE,
            Op.CREATE,
            Op.DELETE,
            Op.ALTER,
            Op.DESCRIBE,
            Op.DESCRIBE_CONFIGS,
            Op.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (Op.READ, Op.DELETE, Op.DESCRIBE),
        ResourceType.CLUSTER: (
            Op.CREATE,
            Op.ALTER,
            Op.DESCRIBE,
            Op.CLUSTER_ACTION,
            Op.DESCRIBE_CONFIGS,
            Op.ALTER_CONFIGS,
            Op.IDEMPOTENT_WRITE,
        ),
    }
)
"""The operations that answers tell of (KIP-430), by type."""
