"""What is heard of a broker, and from whom; values only.

Four can tell something: the broker itself, asked from here; ZooKeeper; the controller's work, seen in ZooKeeper; and
the host that the broker runs on, asked by its launcher. Each can be wrong by itself: the way from here to a broker can
be cut, a login refused, a session outlive its process. So recovery believes none of them alone
(`rules.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from logyard.broker.model import BrokerInfo


class Wire(Enum):
    """How a broker answers from here. The first two are signs of life; who has given one is never stopped."""

    ANSWERS = "answers"
    REFUSES = "lives, but refuses us"  # the login, a right, TLS, the protocol; or it is another cluster's
    SILENT = "takes connections and says nothing"
    CLOSED = "nobody listens at its port"
    UNREACHABLE = "no connection comes about"
    UNKNOWN = "its address is not known"

    @property
    def is_alive(self) -> bool:
        return self in (Wire.ANSWERS, Wire.REFUSES)


class Queue(Enum):
    """How a broker answers ListPartitionReassignments, which passes through the controller's queue (in Kafka too)."""

    ANSWERS = "answers"
    SILENT = "not answered, three times over"
    REFUSES = "answered by an error: it takes over, or takes itself for no controller"
    FORBIDDEN = "this user may not ask"
    UNASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Probe:
    """How one broker answered Metadata (`wire`, the control) and ListPartitionReassignments (`queue`).

    `controller` is whom it believes to be the controller, `cluster_id` the cluster that it belongs to.
    """

    broker: int
    wire: Wire
    queue: Queue = Queue.UNASKED
    controller: int = -1
    cluster_id: str | None = None
    detail: str = ""


class HostState(Enum):
    """What a broker's own host says of it, by the launcher's status command."""

    ANSWERS = "it runs and answers on its own host"
    SILENT = "it runs and does not answer on its own host"
    STARTING = "its process runs, its port is closed on its own host too"
    RUNS = "its process runs"
    GONE = "it has no process"
    UNKNOWN = "nobody could tell"


# The words that a status command may print first on a line; those of `systemctl is-active` among them.
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
    """What ZooKeeper says about the controller; versions and czxid fence what is done about it later.

    `holder` None: no /controller; `elected_ms`: when it was made, by ZooKeeper's clock. `epoch` None:
    /controller_epoch is no number, or missing (`epoch_version` -1). `cluster_id` None: nobody wrote one.
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
    """Something that a recovery did to a broker, as it wrote it into ZooKeeper; `at_ms` by ZooKeeper's clock."""

    kind: str
    broker: int
    at_ms: int
    czxid: int


@dataclass(frozen=True, slots=True)
class Journal:
    """The steps of all recoveries of this cluster in the last hour or so, and ZooKeeper's time now.

    `version` fences: a step is written only while nobody has read or written the journal since.
    """

    now_ms: int
    version: int
    steps: tuple[Step, ...] = ()
