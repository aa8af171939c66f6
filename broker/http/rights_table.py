"""Which rights each HTTP route needs: a row a route, as docs/leases.md has them. A route without a row is not served.

`all_of` is asked before the route does anything. What a route only leaves out of its answer is asked by `sees`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from logyard.broker.leases.book import Purpose
from logyard.broker.znodes.acls import Operation as Op

CLUSTER = "kafka-cluster"
"""The name of the only resource of type Cluster."""

READS = (Op.DESCRIBE, Op.READ)
SWAPS = (Op.DESCRIBE, Op.READ, Op.ALTER)
OF_PURPOSE: Final[Mapping[Purpose, tuple[Op, ...]]] = MappingProxyType(
    {Purpose.AUDIT: READS, Purpose.EXPORT: READS, Purpose.COMPACT: SWAPS}
)
"""What a lease needs on its topic, and what keeps it and ends it."""


class TopicFrom(Enum):
    """Where a request names its topic, and what it is for."""

    PATH = "the path"
    BODY = "`topic` and `purpose` of the body"
    LEASE = "the lease in the path"


class Route(NamedTuple):
    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Row:
    """The rights of one route.

    :param is_open: nobody has to log in.
    :param topic: where the topic comes from, on which `all_of` is asked; without `all_of`, what the purpose needs.
    :param cluster: what is needed on the cluster.
    :param sees: whoever has logged in may ask; what the caller may not describe is left out.
    :param tokens: the purposes for which a run's token may be used here.
    """

    is_open: bool = False
    topic: TopicFrom | None = None
    all_of: tuple[Op, ...] = ()
    cluster: Op | None = None
    sees: bool = False
    tokens: frozenset[Purpose] = frozenset()


_ANY = frozenset(Purpose)
_SWAP = Row(topic=TopicFrom.LEASE, all_of=(Op.ALTER,), tokens=frozenset({Purpose.COMPACT}))
_OF_LEASE = Row(topic=TopicFrom.LEASE, tokens=_ANY)

OPEN_WHEN_PLAIN = frozenset(
    {
        Route("GET", "/metrics"),
        Route("GET", "/decisions"),
        Route("GET", "/decisions/{topic}/{partition:number}"),
    }
)
"""What needs no token where the token of a file is all that there is: other brokers do not have it."""

ROWS: Final[Mapping[Route, Row]] = MappingProxyType(
    {
        Route("GET", "/health"): Row(is_open=True),
        Route("GET", "/metrics"): Row(cluster=Op.DESCRIBE),  # or open, by `http.metrics.open`
        Route("POST", "/leases"): Row(topic=TopicFrom.BODY, tokens=_ANY),
        Route("GET", "/leases"): Row(sees=True, tokens=_ANY),
        Route("GET", "/leases/{lease_id}"): Row(topic=TopicFrom.LEASE, all_of=(Op.DESCRIBE,), tokens=_ANY),
        Route("POST", "/leases/{lease_id}/heartbeat"): _OF_LEASE,
        Route("GET", "/leases/{lease_id}/segments/{base_offset:number}/{file}"): Row(
            topic=TopicFrom.LEASE, all_of=READS, tokens=_ANY
        ),
        Route("PUT", "/leases/{lease_id}/parts/{base_offset:number}"): _SWAP,
        Route("POST", "/leases/{lease_id}/commit"): _SWAP,
        Route("POST", "/leases/{lease_id}/abort"): _OF_LEASE,
        Route("GET", "/partitions"): Row(sees=True, tokens=_ANY),
        Route("GET", "/partitions/{topic}/{partition:number}"): Row(
            topic=TopicFrom.PATH, all_of=(Op.DESCRIBE,), tokens=_ANY
        ),
        Route("POST", "/partitions/{topic}/{partition:number}/quarantine"): Row(cluster=Op.CLUSTER_ACTION),
        Route("GET", "/decisions"): Row(cluster=Op.CLUSTER_ACTION),
        Route("GET", "/decisions/{topic}/{partition:number}"): Row(cluster=Op.CLUSTER_ACTION),
        Route("POST", "/tokens"): Row(topic=TopicFrom.BODY),
        Route("POST", "/runs/renew"): Row(sees=True),
        Route("POST", "/runs/end"): Row(sees=True, tokens=_ANY),
    }
)
