"""One controller's recovery as values: its limits, what is expected, what it remembers, what it found.

A case outlives its process: it is stored as JSON between two rounds, and another worker can continue it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from logyard.admin.recovery.diagnosis import Finding, Health
from logyard.admin.recovery.rules import Doubt
from logyard.broker.errors import CorruptData


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds. `grace_s`: how long brokers may take to elect by themselves, and how long anything has to look
    unhealthy before a step is taken. `ask_every_s`: how often a broker's own host is asked."""

    total_s: float = 300.0
    grace_s: float = 45.0
    look_s: float = 1.0
    probe_s: float = 5.0
    restart_every_s: float = 60.0
    ask_every_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is known beforehand. `epoch`: the recovered controller's epoch must be above this.

    `controller`: the former controller, if a new one may have been elected already. `brokers`: those that should run,
    id → (host, port); if empty, all that hold replicas.
    """

    controller: int | None = None
    epoch: int | None = None
    brokers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address at which a broker was registered; `port` 0 and empty texts: unknown."""

    host: str = ""
    port: int = 0
    rack: str = ""


@dataclass(slots=True)
class Case:
    """What a recovery remembers from round to round. Times are seconds since it began, as far as they were measured.

    `elapsed_s`: those seconds at the end of the last round. `doubt`: for how long something has been wrong with the
    controller (`doubted`: what, and with which czxid of /controller). By broker, for how long: `quiet`, registered and
    without a sign of life; `gone`, not registered; `hung`, took a connection and said nothing; `hushed`, silent
    according to its own host. `asked`: when that host was asked last. `withheld`: steps that are not taken for a broker
    (-1: for the controller), and why. `cluster_id`: the cluster that all this is about; empty: not known yet.
    """

    finding: Finding | None = None
    holder: int | None = None
    epoch: int | None = None
    elapsed_s: float = 0.0
    actions: list[str] = field(default_factory=list)
    tried: dict[int, float] = field(default_factory=dict)
    restarted: set[int] = field(default_factory=set)
    doubted: tuple[str, int] = ("", -1)
    doubt: Doubt | None = None
    quiet: dict[int, Doubt] = field(default_factory=dict)
    gone: dict[int, Doubt] = field(default_factory=dict)
    hung: dict[int, Doubt] = field(default_factory=dict)
    hushed: dict[int, Doubt] = field(default_factory=dict)
    asked: dict[int, float] = field(default_factory=dict)
    places: dict[int, BrokerAddress] = field(default_factory=dict)
    fenced_for: set[int] = field(default_factory=set)
    withheld: dict[int, str] = field(default_factory=dict)
    said: str = ""
    cluster_id: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "finding": self.finding.name if self.finding else None,
            "holder": self.holder,
            "epoch": self.epoch,
            "elapsed_s": self.elapsed_s,
            "actions": list(self.actions),
            "tried": _keyed(self.tried),
            "restarted": sorted(self.restarted),
            "doubted": list(self.doubted),
            "doubt": [self.doubt.since, self.doubt.looks] if self.doubt else None,
            **{name: _doubts_json(getattr(self, name)) for name in _DOUBTS},
            "asked": _keyed(self.asked),
            "places": {str(b): [place.host, place.port, place.rack] for b, place in self.places.items()},
            "fenced_for": sorted(self.fenced_for),
            "withheld": {str(broker): why for broker, why in self.withheld.items()},
            "said": self.said,
            "cluster_id": self.cluster_id,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Case":
        """Read what `as_json` wrote. Raises CorruptData."""
        try:
            kind, czxid = content["doubted"]
            return cls(
                finding=Finding[content["finding"]] if content["finding"] else None,
                holder=content["holder"],
                epoch=content["epoch"],
                elapsed_s=float(content["elapsed_s"]),
                actions=[str(action) for action in content["actions"]],
                tried={int(broker): float(at) for broker, at in content["tried"].items()},
                restarted={int(broker) for broker in content["restarted"]},
                doubted=(str(kind), int(czxid)),
                doubt=_doubt(content["doubt"]) if content["doubt"] else None,
                **{name: {int(b): _doubt(found) for b, found in content[name].items()} for name in _DOUBTS},
                asked={int(broker): float(at) for broker, at in content["asked"].items()},
                places={int(b): _place(found) for b, found in content["places"].items()},
                fenced_for={int(broker) for broker in content["fenced_for"]},
                withheld={int(broker): str(why) for broker, why in content["withheld"].items()},
                said=str(content["said"]),
                cluster_id=str(content.get("cluster_id") or ""),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as problem:
            raise CorruptData(f"not a recovery's case: {problem!r}") from None

    def forget_doubts(self) -> None:
        """Start counting again: a problem that was not observed without a break may have been gone in between."""
        self.doubt = None
        for name in _DOUBTS:
            getattr(self, name).clear()

    def forget_doubts_of(self, broker: int) -> None:
        """The broker was started or stopped: earlier observations do not count any more."""
        for name in _DOUBTS:
            getattr(self, name).pop(broker, None)
        self.withheld.pop(broker, None)
        self.asked.pop(broker, None)


_DOUBTS = ("quiet", "gone", "hung", "hushed")


def _doubts_json(doubts: Mapping[int, Doubt]) -> dict[str, list[float]]:
    return {str(broker): [doubt.since, doubt.looks] for broker, doubt in doubts.items()}


def _keyed(times: Mapping[int, float]) -> dict[str, float]:
    return {str(broker): at for broker, at in times.items()}


def _place(found: Any) -> BrokerAddress:
    host, port, rack = found
    return BrokerAddress(str(host), int(port), str(rack))


def _doubt(found: Any) -> Doubt:
    since, looks = found
    return Doubt(float(since), int(looks))


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found and done; the operator's typed result. `withheld`: steps that were not taken, and why. Times in
    seconds."""

    finding: Finding
    controller_before: int | None
    controller_after: int
    epoch_before: int | None
    epoch_after: int
    restarted: tuple[int, ...]
    missing: tuple[int, ...]
    health: Health
    actions: tuple[str, ...]
    seconds: float
    withheld: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "finding": self.finding.name,
            "controller_before": self.controller_before,
            "controller_after": self.controller_after,
            "epoch_before": self.epoch_before,
            "epoch_after": self.epoch_after,
            "restarted": list(self.restarted),
            "partitions": self.health.partitions,
            "partitions_led": self.health.led,
            "under_replicated": len(self.health.under_replicated),
            "lost": [str(tp) for tp in self.health.lost],
            "moving": len(self.health.moving),
            "stuck_moves": [str(tp) for tp in self.health.stuck_moves],
            "deleting": list(self.health.deleting),
            "missing": list(self.missing),
            "actions": list(self.actions),
            "withheld": list(self.withheld),
            "seconds": round(self.seconds, 3),
        }
