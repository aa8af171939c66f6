"""Why a cluster's state is not known now, in words for people: what is wrong, with whom, and what to do."""

from dataclasses import dataclass
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.ports import AccessRefused, ClusterUnreachable
from logyard.admin.settings import ClusterSettings
from logyard.plugins.logyard_ui.responses.optional_parts import error_line

NAMED_MAX = 20

_SILENT = "no broker answers"
_START = "Start them, or check the network between them and Airflow's API server."
_FIRST = "Check that they run, and the connection's addresses and security protocol."
_LOGIN = "Check the connection's login and password. Nothing is known about the cluster's health."


@dataclass(frozen=True, slots=True)
class Outage:
    """`problem`: what is wrong, without names; `brokers`: whom it is about; `advice`: what to do, as a sentence.

    `broker_ids`: the brokers that answered at the last read, and none of which does now.
    """

    problem: str
    brokers: tuple[str, ...] = ()
    advice: str = ""
    broker_ids: tuple[int, ...] = ()

    def as_json(self, since_ms: int | None) -> dict[str, Any]:
        """`since_ms`: when the cluster was read last, in ms since 1970."""
        return {
            "since_ms": since_ms,
            "brokers": list(self.brokers),
            "broker_ids": list(self.broker_ids),
            "advice": self.advice,
        }


def outage(problem: Exception, settings: ClusterSettings, last: ClusterSnapshot | None) -> Outage:
    """Tell the error of a read; `last` is what was read before it, if anything was."""
    if isinstance(problem, AccessRefused):
        return Outage(error_line(problem), (), _LOGIN)
    if not isinstance(problem, ClusterUnreachable):
        return Outage(error_line(problem))
    if last is None:
        return Outage(_SILENT, settings.bootstrap[:NAMED_MAX], _FIRST)
    # Who answered before has the right address and login: these are not what to look at.
    known = [f"broker {node.id} ({node.host}:{node.port})" for _, node in sorted(last.brokers.items())]
    return Outage(_SILENT, tuple(known[:NAMED_MAX]), _START, tuple(sorted(last.brokers)))
