"""One controller's recovery as values: how patient it is, what is expected, what it remembers, what it found.

A case outlives the process that works on it: it is written as JSON between two rounds, and another worker goes on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from logyard.admin.diagnosis import Finding, Health
from logyard.broker.errors import CorruptData


@dataclass(frozen=True, slots=True)
class Limits:
    """Patience, in seconds. `grace_s`: how long brokers are left to elect by themselves, and a session to expire."""

    total_s: float = 300.0
    grace_s: float = 45.0
    look_s: float = 1.0
    probe_s: float = 5.0
    restart_every_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is known beforehand. `epoch`: an epoch that the recovered controller's must be above.

    `controller`: who was controller, where a new one may have been elected already. `brokers`: those that ought to
    run, id → (host, port); all that hold replicas where it is empty.
    """

    controller: int | None = None
    epoch: int | None = None
    brokers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    protocol: str = "PLAINTEXT"


@dataclass(slots=True)
class Case:
    """What a recovery remembers from round to round. Times are seconds since it began.

    `suspects`: brokers that hung → since when they are given time. `places`: broker → (host, rack) as registered.
    `since`: the finding that was made last → since when it stands.
    """

    finding: Finding | None = None
    holder: int | None = None
    epoch: int | None = None
    actions: list[str] = field(default_factory=list)
    tried: dict[int, float] = field(default_factory=dict)
    restarted: set[int] = field(default_factory=set)
    suspects: dict[int, float] = field(default_factory=dict)
    places: dict[int, tuple[str, str]] = field(default_factory=dict)
    since: dict[Finding, float] = field(default_factory=dict)
    fenced_for: set[int] = field(default_factory=set)
    said: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "finding": self.finding.name if self.finding else None,
            "holder": self.holder,
            "epoch": self.epoch,
            "actions": list(self.actions),
            "tried": {str(broker): at for broker, at in self.tried.items()},
            "restarted": sorted(self.restarted),
            "suspects": {str(broker): at for broker, at in self.suspects.items()},
            "places": {str(broker): list(place) for broker, place in self.places.items()},
            "since": {finding.name: at for finding, at in self.since.items()},
            "fenced_for": sorted(self.fenced_for),
            "said": self.said,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Case":
        """Read what `as_json` wrote. Raises CorruptData."""
        try:
            return cls(
                finding=Finding[content["finding"]] if content["finding"] else None,
                holder=content["holder"],
                epoch=content["epoch"],
                actions=[str(action) for action in content["actions"]],
                tried={int(broker): float(at) for broker, at in content["tried"].items()},
                restarted={int(broker) for broker in content["restarted"]},
                suspects={int(broker): float(at) for broker, at in content["suspects"].items()},
                places={int(b): (str(host), str(rack)) for b, (host, rack) in content["places"].items()},
                since={Finding[name]: float(at) for name, at in content["since"].items()},
                fenced_for={int(broker) for broker in content["fenced_for"]},
                said=str(content["said"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise CorruptData(f"not a recovery's case: {problem!r}") from None


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found and done; the operator's typed result. Times in seconds."""

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
            "seconds": round(self.seconds, 3),
        }
