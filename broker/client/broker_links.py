"""The links of one broker to others: to the controller, to leaders, to coordinators, and as controller to everybody."""

from logyard.broker.client.controller_link import ToController
from logyard.broker.client.fetch_link import ReplicaFetchLink
from logyard.broker.client.peer_security import PeerSecurity
from logyard.broker.client.peers import ControllerPeers
from logyard.broker.client.verification_requests import VerificationRequests
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.replication.ports import FetchLink


class BrokerLinks:
    """All of them go to the listener between brokers, secured in the same way."""

    def __init__(self, config: BrokerConfig, metadata: MetadataCache, security: PeerSecurity) -> None:
        self._config, self._metadata, self._security = config, metadata, security
        listener, broker_id = config.inter_broker_listener, config.broker_id
        self.to_controller = ToController(
            lambda: metadata.brokers.get(metadata.controller_id),
            listener,
            f"broker-{broker_id}",
            config.int("controller.socket.timeout.ms") / 1000,
            security,
        )
        self.peers = ControllerPeers(listener, f"controller-{broker_id}", security=security)
        self.verification_requests = VerificationRequests(
            listener, f"broker-{broker_id}", config.int("request.timeout.ms") / 1000, security
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
        self.peers.close()
