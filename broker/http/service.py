"""The HTTP side of one broker, put together: leases, metrics and health behind one ASGI application."""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette

from logyard.broker.http import routes, token
from logyard.broker.http.metrics import ApiFigures, LoopPauses, Metrics, Sources
from logyard.broker.leases.leases import LeasePorts
from logyard.broker.leases.service import LeaseService

Health = Callable[[], tuple[bool, dict[str, Any]]]


class HttpService:
    """Built with the broker, whether or not anybody listens: the leases are the cleaner's as well.

    It hears of truncated logs from the store, and of replicas that go as a listener of the replicas.
    """

    def __init__(
        self,
        ports: LeasePorts,
        *,
        broker_id: int,
        cluster_id: str,
        controller_gauges: Callable[[], Mapping[str, int]],
        apis: Mapping[int, ApiFigures],
        health: Health,
        other_gauges: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self.lease_service = LeaseService(ports, broker_id, cluster_id)
        self._pauses = LoopPauses(ports.timers, ports.clock.monotonic)
        self._health = health
        self._metrics = Metrics(
            Sources(
                replicas=ports.replicas,
                controller_gauges=controller_gauges,
                apis=apis,
                store=ports.store,
                leases=self.lease_service.leases,
                pauses=self._pauses,
                identity={"broker_id": str(broker_id), "cluster_id": cluster_id},
                other_gauges=other_gauges,
            )
        )
        ports.replicas.add_listener(self.lease_service.leases)

    def start(self) -> None:
        """Begin to expire leases."""
        self.lease_service.leases.start()

    async def close(self) -> None:
        """End every lease; before the logs are closed."""
        self._pauses.close()
        await self.lease_service.leases.close()

    def app(self, token_file: str | None, log_dir: str) -> Starlette:
        """Return the ASGI application; the token comes from `token_file`, else from `http.token` in `log_dir`.

        From now on the event loop's pauses are measured, since there is somebody to tell.
        Raises LogyardError where `token_file` has none.
        """
        secret = token.load(token_file) if token_file is not None else token.load_or_create(log_dir)
        self._pauses.start()
        return routes.build(self.lease_service, secret, self._health, self._metrics.text)
