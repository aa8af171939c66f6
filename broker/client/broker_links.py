"""The links of one broker to others: to the controller, to leaders, to coordinators, and as controller to everybody."""

from collections.abc import Callable

from logyard.broker.client.controller_link import ToController
from logyard.broker.client.controller_requests import ControllerChannel
from logyard.broker.client.fetch_link import ReplicaFetchLink
from logyard.broker.client.peer_security import PeerSecurity
from logyard.broker.client.peers import ControllerPeers
from logyard.broker.client.verification_requests import VerificationRequests
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.replication.ports import FetchLink


class BrokerLinks:
    """They go to the listener between brokers, those of the control plane to its own listener if it has one.

    The control plane is what the controller sends, and requests 56 and 67 to it (facts §18.3).
    """

    def __init__(
        self, config: BrokerConfig, metadata: MetadataCache, security: PeerSecurity, control_security: PeerSecurity
    ) -> None:
        self._config, self._metadata, self._security = config, metadata, security
        listener, broker_id = config.inter_broker_listener, config.broker_id
        control = config.control_plane_listener
        self.to_controller = self._to_controller(listener, security)
        self.control_to_controller = (
            self.to_controller if control == listener else self._to_controller(control, control_security)
        )
        self.peers = ControllerPeers(control, f"controller-{broker_id}", security=control_security)
        self.verification_requests = VerificationRequests(
            listener, f"broker-{broker_id}", config.int("request.timeout.ms") / 1000, security
        )

    def _to_controller(self, listener: str, security: PeerSecurity) -> ToController:
        return ToController(
            lambda: self._metadata.brokers.get(self._metadata.controller_id),
            listener,
            f"broker-{self._config.broker_id}",
            self._config.int("controller.socket.timeout.ms") / 1000,
            security,
        )

    def controller_channel(self, broker_epoch: Callable[[], int]) -> ControllerChannel:
        """Return what asks the controller for producer ids and a controlled shutdown."""
        config = self._config
        return ControllerChannel(
            self.to_controller, self.control_to_controller, config.broker_id, broker_epoch, config.ibp
        )

    def fetch_link(self, leader: int) -> FetchLink:
        """Return a new link of a follower to a leader."""
        return ReplicaFetchLink(
            leader,
            self._metadata.brokers.get,
            self._config.inter_broker_listener,
            self._config.broker_id,
            self._config.int("replica.socket.timeout.ms") / 1000,
            self._security,
        )

    def close(self) -> None:
        """Close the links to the controller and, as controller, to the brokers."""
        self.to_controller.close()
        self.control_to_controller.close()
        self.peers.close()
