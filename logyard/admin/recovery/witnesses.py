"""The witnesses of a recovery and what each reports. Values only.

There are four: the broker itself, asked from here; ZooKeeper; the controller's work, seen in ZooKeeper; and the host
that the broker runs on, asked by its launcher. Each can be wrong: the network from here to a broker can be cut, a login
refused, a session outlive its process. So recovery never acts on one witness alone (`rules.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from logyard.broker.model import BrokerInfo


class Wire(Enum):
    """How a broker answers from here. The first two are signs of life; a broker that gave one is never stopped."""

    ANSWERS = "answers"
    REFUSES = "is alive, but refuses us"  # the login, a right, TLS, the protocol; or it is another cluster's
    SILENT = "accepts connections and does not answer"
    CLOSED = "nothing listens at its port"
    UNREACHABLE = "no connection can be made"
    UNKNOWN = "its address is unknown"

    @property
    def is_alive(self) -> bool:
        return self in (Wire.ANSWERS, Wire.REFUSES)


class Queue(Enum):
    """How a broker answers ListPartitionReassignments, which passes through the controller's queue (in Kafka too)."""

    ANSWERS = "answers"
    SILENT = "not answered, three times over"
    REFUSES = "answered with an error: it is taking over, or does not consider itself controller"
    FORBIDDEN = "this user is not authorized"
    UNASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Probe:
    """How one broker answered Metadata (`wire`, the control) and ListPartitionReassignments (`queue`).

    `controller` is the broker that it considers controller, `cluster_id` the cluster that it belongs to.
    """

    broker: int
    wire: Wire
    queue: Queue = Queue.UNASKED
    controller: int = -1
    cluster_id: str | None = None
    detail: str = ""


class HostState(Enum):
    """A broker's state according to its own host, by the launcher's status command."""

    ANSWERS = "it runs and answers on its own host"
    SILENT = "it runs but does not answer on its own host"
    STARTING = "its process runs, but its port is closed on its own host too"
    RUNS = "its process runs"
    GONE = "it has no process"
    UNKNOWN = "unknown"


# The first word that a status command may print; includes the words of `systemctl is-active`.
HOST_STATES = {
    "answers": HostState.ANSWERS,
    "silent": HostState.SILENT,
    "starting": HostState.STARTING,
    "runs": HostState.RUNS,
    "gone": HostState.GONE,
    "active": HostState.RUNS,
    "activating": HostState.STARTING,
    "reloading": HostState.RUNS,
    "deactivating": HostState.RUNS,
    "inactive": HostState.GONE,
    "failed": HostState.GONE,
}


@dataclass(frozen=True, slots=True)
class ControllerView:
    """ZooKeeper's view of the controller; versions and czxid make later writes conditional.

    `holder` None: no /controller; `elected_ms`: its creation, by ZooKeeper's clock. `epoch` None: /controller_epoch is
    not a number, or missing (`epoch_version` -1). `cluster_id` None: there is none.
    """

    holder: int | None
    czxid: int
    epoch: int | None
    epoch_version: int
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    elected_ms: int = 0
    cluster_id: str | None = None


FENCE, STOP = "fence", "stop"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a recovery, as recorded in ZooKeeper; `at_ms` by ZooKeeper's clock."""

    kind: str
    broker: int
    at_ms: int
    czxid: int


@dataclass(frozen=True, slots=True)
class Journal:
    """The recent steps (about an hour) of all recoveries of this cluster, and ZooKeeper's time now.

    `version` makes writes conditional: a step is recorded only if nobody has read or written the journal since.
    """

    now_ms: int
    version: int
    steps: tuple[Step, ...] = ()
