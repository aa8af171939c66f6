"""The loggers of a broker and their levels, which change while it runs (BROKER_LOGGER in Kafka's protocol, KIP-412).

Rule 1: every logger of the broker's code is in LOGGERS. One without a level of its own has that of the nearest name
        above it, as in log4j; above all is `root`.
Rule 2: a level holds until the process ends, as in Kafka.
Rule 3: what libraries write is no part of it, except that `root` may silence it: at DEBUG the library for ZooKeeper
        writes the secrets that settings contain.
"""

from collections.abc import Callable
from typing import TextIO

import structlog
from structlog.typing import EventDict

ROOT = "root"
AUDIT = "kafka.authorizer.logger"

# Those of Kafka (LogLevelConfig), as numbers of Python's `logging`. Nothing is written at TRACE or FATAL: TRACE shows
# what DEBUG does, FATAL silences.
LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}

LOGGERS = {
    ROOT: "What has no level of its own; from WARN on that of libraries too.",
    AUDIT: "The audit log: what was denied at INFO, what was allowed at DEBUG.",
    "logyard": "All of the loggers below it.",
    "logyard.addresses": "Names of clients' addresses.",
    "logyard.answers": "Answers that clients do not read.",
    "logyard.broker": "Start, stop, changed settings, log directories.",
    "logyard.cleaner": "The cleaner of compacted logs.",
    "logyard.connection": "Bytes that are no request.",
    "logyard.control": "The controller's requests to this broker, which `logyard story` reads, at INFO.",
    "logyard.controller": "What this broker does as controller, which `logyard story` reads, at INFO.",
    "logyard.controller-channel": "What this broker asks the controller.",
    "logyard.dispatch": "Requests that fail.",
    "logyard.fetcher": "Fetching from leaders.",
    "logyard.groups": "Consumer groups and their offsets.",
    "logyard.http": "The HTTP side.",
    "logyard.isr": "Changes of the in-sync replicas.",
    "logyard.leases": "Leases on segments.",
    "logyard.link": "Connections to other brokers.",
    "logyard.listener": "Connections of clients: refused, cut off, idle at INFO and above, every one at DEBUG.",
    "logyard.login": "Log-ins.",
    "logyard.peers": "What this broker as controller sends to others.",
    "logyard.producer-ids": "Blocks of producer ids.",
    "logyard.quarantine": "Replicas that are set aside.",
    "logyard.replication": "Leaders, followers, and what is wrong with logs.",
    "logyard.services": "Settings of topics that cannot be read, and changed levels of loggers.",
    "logyard.tasks": "Background work that fails.",
    "logyard.tls": "TLS: handshakes, stores.",
    "logyard.tokens": "Delegation tokens.",
    "logyard.transactions": "Transactions.",
    "logyard.zk": "Sessions with ZooKeeper.",
}

_OF_METHOD = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class LogLevels:
    """The levels of one broker's loggers."""

    def __init__(self) -> None:
        # As in Kafka's log4j.properties the audit log does not follow `root` by itself.
        self._own = {ROOT: "INFO", AUDIT: "INFO"}
        self._lowest: dict[str, int] = {}
        self._followers: list[Callable[[], None]] = []

    def level(self, name: str) -> str:
        """Return the level that a logger goes by; one that is not in LOGGERS goes by its ancestors'."""
        while name not in self._own:
            above, dot, _ = name.rpartition(".")
            name = above if dot else ROOT
        return self._own[name]

    def is_written(self, name: str, level: str) -> bool:
        """Whether this logger writes what is said at this level of LEVELS."""
        return LEVELS[level] >= LEVELS[self.level(name)]

    def set(self, name: str, level: str) -> None:
        """Give a logger a level of LEVELS."""
        self._own[name] = level
        self._changed()

    def unset(self, name: str) -> None:
        """Have a logger, which is not `root`, go by the next above it."""
        self._own.pop(name, None)
        self._changed()

    def follow(self, follower: Callable[[], None]) -> None:
        """Call it now, and after each change."""
        self._followers.append(follower)
        follower()

    def filtered(self, logger: "NamedLogger", method: str, event: EventDict) -> EventDict:
        """structlog's first processor: raises DropEvent for what is below the logger's level."""
        known = self._lowest  # that of before, where a thread comes here during a change
        lowest = known.get(logger.name)
        if lowest is None:
            lowest = known[logger.name] = LEVELS[self.level(logger.name)]
        if _OF_METHOD[method] < lowest:
            raise structlog.DropEvent
        return event

    def _changed(self) -> None:
        self._lowest = {}
        for follower in self._followers:
            follower()


class NamedLogger(structlog.WriteLogger):
    """Writes lines to a stream, and knows whose they are."""

    def __init__(self, name: str, stream: TextIO) -> None:
        super().__init__(stream)
        self.name = name
