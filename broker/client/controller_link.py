"""The link to the current controller; it is replaced when the controller changes."""

from collections.abc import Callable, Mapping
from typing import Any

from logyard.broker.client.link import Link
from logyard.broker.client.peer_security import PLAIN, PeerSecurity
from logyard.broker.model import BrokerInfo
from logyard.broker.replication.ports import LinkError

FindController = Callable[[], BrokerInfo | None]


class ToController:
    """Sends requests to the controller that this broker's metadata names."""

    def __init__(
        self,
        find: FindController,
        listener: str,
        client_id: str,
        request_timeout_s: float = 30.0,
        security: PeerSecurity = PLAIN,
    ) -> None:
        self._security = security
        self._find = find
        self._listener = listener
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._link: Link | None = None

    async def request(
        self, api_key: int, version: int, fields: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> Any:
        """Return the decoded answer. Raises LinkError, also if no controller is known."""
        controller = self._find()
        endpoint = controller.endpoint(self._listener) if controller is not None else None
        if endpoint is None:
            raise LinkError("no controller is known")
        if self._link is None or (self._link.host, self._link.port) != (endpoint.host, endpoint.port):
            self.close()
            self._link = Link(
                endpoint.host,
                endpoint.port,
                client_id=self._client_id,
                request_timeout_s=self._request_timeout_s,
                security=self._security,
            )
        return await self._link.request(api_key, version, fields, timeout_s=timeout_s)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
