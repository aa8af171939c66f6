"""Records of throttles: one for each owner, and what follows from all of them together. Pure.

Several may want a throttle at the same time: our own runs, each for its moves, persons, and other tools. The settings
of the others are only known by reading them. So each owner records what it saw before it changed a setting, and every
value that it wrote. From all records it follows which value is an owner's and which is somebody else's: the *base*. A
setting that no owner claims any more returns to its base; a value that no owner wrote was set by somebody else, and
stays. If somebody else sets exactly the value that an owner has written, it counts as the owner's.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from logyard.broker.errors import CorruptData

TOPIC, BROKER = "topic", "broker"
HELD, ENDING, OVER = "held", "ending", "over"
EVERYTHING = "*"


class ThrottleSetting(NamedTuple):
    """One setting that throttles: of a topic (`kind` TOPIC, a list of replicas) or of a broker (BROKER, a rate)."""

    kind: str
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Claim:
    """One owner's claim on one setting: the value it wants, what it saw first, and all values that it has written.

    `wanted`: a rate in bytes per second, or a list of `partition:broker`. `looked`: whether `saw` is known yet.
    `since` and `seen`: when the owner claimed it first, and when it read `saw`, both in turns (`next_turn`). An owner
    that ended and begins again has a later turn, and what it had seen may still be what is to be restored.
    """

    wanted: str
    looked: bool = False
    saw: str | None = None
    written: tuple[str, ...] = ()
    since: int = 0
    seen: int = 0

    def found(self, value: str | None, turn: int, of_others: Collection[str]) -> "Claim":
        """This claim after the setting was read in that turn; `of_others`: the values that other owners have written.

        Where it was read in an earlier turn, what owners have written says nothing new.
        """
        if self.looked:
            return self
        if value in self.written or (self.written and value in of_others):
            return replace(self, looked=True)
        return replace(self, looked=True, saw=value, seen=turn)

    def wrote(self, value: str) -> "Claim":
        return self if value in self.written else replace(self, written=(*self.written, value))


@dataclass(frozen=True, slots=True)
class Record:
    """One owner's claims. `turn` orders the owners: the later one's rate counts. `state`: HELD, ENDING or OVER.

    ENDING: the owner wants nothing any more, but some settings may not be restored yet. OVER: the record is kept only
    because another owner's claims were made on top of it.
    """

    owner: str
    turn: int
    state: str = HELD
    claims: Mapping[ThrottleSetting, Claim] = field(default_factory=dict)

    def partitions(self) -> set[tuple[str, int]]:
        """The partitions (topic, number) whose moves are throttled."""
        return {
            (setting.name, int(entry.partition(":")[0]))
            for setting, claim in self.claims.items()
            if setting.kind == TOPIC
            for entry in entries(claim.wanted)
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "owner": self.owner,
            "turn": self.turn,
            "state": self.state,
            "claims": [
                {
                    **setting._asdict(),
                    "wanted": c.wanted,
                    "looked": c.looked,
                    "saw": c.saw,
                    "written": list(c.written),
                    "since": c.since,
                    "seen": c.seen,
                }
                for setting, c in sorted(self.claims.items())
            ],
        }

    @classmethod
    def from_json(cls, text: str | Mapping[str, Any]) -> "Record":
        """Read what `as_json` wrote, or its JSON text. Raises CorruptData."""
        try:
            content = json.loads(text) if isinstance(text, str) else text
            turn = int(content["turn"])
            claims = {
                ThrottleSetting(str(c["kind"]), str(c["name"]), str(c["key"])): Claim(
                    str(c["wanted"]),
                    bool(c["looked"]),
                    None if c["saw"] is None else str(c["saw"]),
                    tuple(str(value) for value in c["written"]),
                    int(c.get("since", turn)),
                    int(c.get("seen", turn)),
                )
                for c in content["claims"]
            }
            found = cls(str(content["owner"]), turn, str(content["state"]), claims)
            found.partitions()  # raises where a list names none
            return found
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as problem:
            raise CorruptData(f"not a throttle's record: {problem!r}") from None


class Records(Protocol):
    """Where the records of one cluster are kept, so that a run finds those of dead runs."""

    def load(self) -> list[Record]:
        """All of them, in no order."""
        ...

    def put(self, record: Record) -> None:
        """Replace its owner's record by this one."""
        ...

    def drop(self, owner: str) -> None:
        """Delete an owner's record, if there is one."""
        ...


def entries(text: str | None) -> list[str]:
    """The entries of a list of replicas."""
    return [entry for entry in (text or "").split(",") if entry]


def base(setting: ThrottleSetting, records: Collection[Record]) -> str | None:
    """The value that somebody without a record set last, as far as an owner saw it.

    What an owner saw is another owner's value if that one had claimed the setting before.
    """
    found: str | None = None
    for claim in sorted(_claims(setting, records), key=lambda claim: claim.seen):
        before = [other for other in _claims(setting, records) if other is not claim and other.since < claim.seen]
        # An owner that has written has looked before that, if not in this turn.
        if (claim.looked or claim.written) and not any(claim.saw in other.written for other in before):
            found = claim.saw
    return found


def next_turn(records: Iterable[Record]) -> int:
    """A turn later than everything that these records tell."""
    return 1 + max((max(r.turn, *(c.seen for c in r.claims.values()), 0) for r in records), default=0)


def written_by(setting: ThrottleSetting, records: Iterable[Record]) -> set[str]:
    """All values that these owners have written."""
    return {value for claim in _claims(setting, records) for value in claim.written}


def is_known(setting: ThrottleSetting, value: str | None, records: Sequence[Record]) -> bool:
    """Whether an owner has written this value, or it is the base; else somebody else set it."""
    return value == base(setting, records) or any(value in claim.written for claim in _claims(setting, records))


def standing(setting: ThrottleSetting, records: Sequence[Record]) -> str | None:
    """The value that the setting must have: the base combined with what the current owners want. None: not set."""
    below = base(setting, records)
    wanted = [claim.wanted for claim in _claims(setting, [r for r in records if r.state == HELD])]
    if setting.kind == BROKER:
        return wanted[-1] if wanted else below
    if below == EVERYTHING:
        return below
    joined = dict.fromkeys(entry for text in (below, *wanted) for entry in entries(text))
    return ",".join(joined) or None


def no_longer_needed(records: Collection[Record]) -> list[Record]:
    """Records that are OVER and on which no other owner's claims depend."""
    claimed = {setting for record in records if record.state != OVER for setting in record.claims}
    return [record for record in records if record.state == OVER and not claimed & set(record.claims)]


def _claims(setting: ThrottleSetting, records: Iterable[Record]) -> list[Claim]:
    ordered = sorted(records, key=lambda record: (record.turn, record.owner))
    return [record.claims[setting] for record in ordered if setting in record.claims]
