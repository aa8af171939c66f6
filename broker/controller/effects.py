"""The effects that the controller's procedures have their runner perform: plain values, and typed ways to yield them.

A procedure is a generator (`Steps`) that yields a batch of effects and is sent the list of their results, one each, in
order. The helpers at the end yield one effect and return its typed result. The runner stamps every effect with the id
of the event that caused it.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from logyard.broker.controller.broker_requests.batch import BrokerRequest
from logyard.broker.controller.events import Event
from logyard.broker.errors import LogyardError
from logyard.broker.model import BrokerInfo, TopicId
from logyard.broker.znodes.ops import OpResult, ZkOp, Znode


@dataclass(frozen=True, slots=True)
class ZkMulti:
    """Send independent transactions back to back. Result: list[list[OpResult]]."""

    multis: Sequence[Sequence[ZkOp]]


@dataclass(frozen=True, slots=True)
class ZkRead:
    """Read many znodes. Result: list[Znode | None]; `each`: with its error in the place of one that cannot be read."""

    paths: Sequence[str]
    each: bool = False


@dataclass(frozen=True, slots=True)
class ZkChildren:
    """Read the children of many znodes. Result: list[list[str] | None]."""

    paths: Sequence[str]


@dataclass(frozen=True, slots=True)
class WatchData:
    """Read znodes and queue each one's event once it is created, changed or deleted. Result: as ZkRead."""

    targets: Sequence[tuple[str, Event]]


@dataclass(frozen=True, slots=True)
class WatchChildren:
    """Read children and queue each parent's event once they change. Result: as ZkChildren."""

    targets: Sequence[tuple[str, Event]]


@dataclass(frozen=True, slots=True)
class OpenPeer:
    """Create a sender for a broker. Result: None."""

    broker: BrokerInfo


@dataclass(frozen=True, slots=True)
class ClosePeer:
    """Drop a broker's sender with its queued requests. Result: None."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class Send:
    """Queue LeaderAndIsr, UpdateMetadata or StopReplica for a broker; its answer comes as an event. Result: None."""

    request: BrokerRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the API request that is being handled; the procedure may continue after it. Result: None."""

    value: Any


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Put an event at the end of the queue. Result: None."""

    event: Event


@dataclass(frozen=True, slots=True)
class Schedule:
    """Queue an event after `delay_s` seconds, unless the controller resigns before. Result: None."""

    delay_s: float
    event: Event


@dataclass(frozen=True, slots=True)
class Draw:
    """Draw random numbers, each from 0 up to but not including its bound. Result: list[int]."""

    bounds: Sequence[int]


@dataclass(frozen=True, slots=True)
class NewTopicIds:
    """Make random topic ids. Result: list[TopicId]."""

    count: int


@dataclass(frozen=True, slots=True)
class Now:
    """Read the wall clock. Result: int, milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class SessionId:
    """Ask for the id of the ZooKeeper session. Result: int."""


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """Return the largest controller epoch that requests to this broker named. Result: int."""


@dataclass(frozen=True, slots=True)
class Note:
    """Write a line to the log, with the id of the event. Result: None."""

    text: str
    fields: Mapping[str, object] = field(default_factory=dict)
    level: str = "info"


@dataclass(frozen=True, slots=True)
class Turn:
    """Give the event loop a turn for others, in the middle of work whose size a client or the cluster chose. Result:
    None."""


Effect = (
    ZkMulti
    | ZkRead
    | ZkChildren
    | WatchData
    | WatchChildren
    | OpenPeer
    | ClosePeer
    | Send
    | Answer
    | Enqueue
    | Schedule
    | Draw
    | NewTopicIds
    | Now
    | SessionId
    | EpochSeen
    | Note
    | Turn
)

# What takes some microseconds each is done so often in one turn of the event loop.
DONE_PER_TURN = 500
# So many znodes are read in one go; what is done with them then takes some milliseconds too.
READ_PER_TURN = 2500

T = TypeVar("T")
Steps = Generator[Sequence[Effect], Sequence[Any], T]


def perform(*effects: Effect) -> Steps[None]:
    """Yield effects whose results are not needed."""
    if effects:
        yield effects


def note(text: str, level: str = "info", **fields: object) -> Steps[None]:
    """Write one line to the log."""
    yield [Note(text, fields, level)]


def done(number: int) -> Steps[None]:
    """So many parts of a request are done: after each DONE_PER_TURN others have a turn."""
    if number % DONE_PER_TURN == 0:
        yield [Turn()]


def spread(costs: Iterable[int]) -> Steps[None]:
    """Do work that yields the cost of each portion: after each DONE_PER_TURN of it others have a turn."""
    used = 0
    for cost in costs:
        used += cost
        if used >= DONE_PER_TURN:
            used = 0
            yield [Turn()]


def picked(things: Iterable[T], wanted: Callable[[T], bool]) -> Steps[list[T]]:
    """Return those of very many things that are wanted, with turns for others."""
    found: list[T] = []
    for number, thing in enumerate(things, 1):
        if wanted(thing):
            found.append(thing)
        yield from done(number)
    return found


def multi(multis: Sequence[Sequence[ZkOp]]) -> Steps[list[list[OpResult]]]:
    """Send transactions without fencing; only controller_election.py and fencing.py may call this."""
    results = yield [ZkMulti(multis)]
    answers: list[list[OpResult]] = results[0]
    return answers


def read(paths: Sequence[str]) -> Steps[list[Znode | None]]:
    """Read znodes; an empty list of paths yields nothing."""
    if not paths:
        return []
    results = yield [ZkRead(paths)]
    znodes: list[Znode | None] = results[0]
    return znodes


def read_each(paths: Sequence[str]) -> Steps[list[Znode | LogyardError | None]]:
    """Do the same; one that cannot be read does not cost the others."""
    if not paths:
        return []
    results = yield [ZkRead(paths, each=True)]
    znodes: list[Znode | LogyardError | None] = results[0]
    return znodes


def children(paths: Sequence[str]) -> Steps[list[list[str] | None]]:
    """Read children; an empty list of paths yields nothing."""
    if not paths:
        return []
    results = yield [ZkChildren(paths)]
    names: list[list[str] | None] = results[0]
    return names


def watch_data(targets: Sequence[tuple[str, Event]]) -> Steps[list[Znode | None]]:
    """Read znodes and watch them."""
    if not targets:
        return []
    results = yield [WatchData(targets)]
    znodes: list[Znode | None] = results[0]
    return znodes


def watch_children(path: str, event: Event) -> Steps[list[str] | None]:
    """Read one znode's children and watch them."""
    results = yield [WatchChildren([(path, event)])]
    names: list[str] | None = results[0][0]
    return names


def draw(bounds: Sequence[int]) -> Steps[list[int]]:
    """Draw random numbers below the bounds."""
    results = yield [Draw(bounds)]
    numbers: list[int] = results[0]
    return numbers


def new_topic_ids(count: int) -> Steps[list[TopicId]]:
    """Make random topic ids."""
    if count == 0:
        return []
    results = yield [NewTopicIds(count)]
    ids: list[TopicId] = results[0]
    return ids


def now_ms() -> Steps[int]:
    """Read the wall clock."""
    results = yield [Now()]
    now: int = results[0]
    return now


def epoch_seen() -> Steps[int]:
    """Return the largest controller epoch that requests to this broker named; 0 if there were none."""
    results = yield [EpochSeen()]
    epoch: int = results[0]
    return epoch


def session_id() -> Steps[int]:
    """Return the ZooKeeper session's id."""
    results = yield [SessionId()]
    session: int = results[0]
    return session
