"""What one broker serves over HTTP: leases, metrics and health behind one ASGI application."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette

from logyard.broker.http import routes
from logyard.broker.http.access import Access, Endpoint
from logyard.broker.http.metrics import ApiFigures, LoopPauses, Metrics, Sources
from logyard.broker.http.rights_table import Route
from logyard.broker.leases.service import LeaseService
from logyard.broker.transactions.verification_figures import VerificationFigures

Health = Callable[[], tuple[bool, dict[str, Any]]]


class HttpService:
    """Built with the broker, whether or not it listens for HTTP."""

    def __init__(
        self,
        lease_service: LeaseService,
        *,
        controller_gauges: Callable[[], Awaitable[Mapping[str, int]]],
        apis: Mapping[int, ApiFigures],
        health: Health,
        other_gauges: Callable[[], Mapping[str, int]] = dict,
        verification: VerificationFigures | None = None,
    ) -> None:
        leases = lease_service.leases
        self._lease_service = lease_service
        self._pauses = LoopPauses(leases.ports.timers, leases.ports.clock.monotonic)
        self._health = health
        self._metrics = Metrics(
            Sources(
                replicas=leases.ports.replicas,
                controller_gauges=controller_gauges,
                apis=apis,
                store=leases.ports.store,
                leases=leases,
                pauses=self._pauses,
                identity={"broker_id": str(leases.broker_id), "cluster_id": lease_service.cluster_id},
                other_gauges=other_gauges,
                verification=verification,
            )
        )

    def close(self) -> None:
        """Measure no more pauses."""
        self._pauses.close()

    def app(self, access: Access, more: Sequence[tuple[Route, Endpoint]] = ()) -> Starlette:
        """Return the ASGI application behind this gate, with the gate's own routes.

        From now on the event loop's pauses are measured: they are read at /metrics.
        """
        self._pauses.start()
        return routes.build(self._lease_service, access, self._health, self._metrics.text, more)
