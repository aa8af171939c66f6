"""The requests AllocateProducerIds and ControlledShutdown to the controller."""

import asyncio
from collections.abc import Callable

import structlog

from logyard.broker.client.controller_link import ToController
from logyard.broker.config.inter_broker_protocol import LATEST_IBP, InterBrokerProtocol
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.replication.ports import LinkError

ALLOCATE_PRODUCER_IDS = 67
CONTROLLED_SHUTDOWN = 7
log = structlog.get_logger("logyard.controller-channel")


def controlled_shutdown_version(ibp: InterBrokerProtocol) -> int:
    """Return the version that Kafka 3.9 uses at this protocol level (KafkaServer.controlledShutdown)."""
    if ibp < InterBrokerProtocol.IBP_0_9_0:
        return 0
    if ibp < InterBrokerProtocol.IBP_2_2_IV0:
        return 1
    return 2 if ibp < InterBrokerProtocol.IBP_2_4_IV1 else 3


class ControllerChannel:
    """Asks the current controller for blocks of producer ids and for a controlled shutdown.

    Only the former is a request of the control plane (facts §18.3).
    """

    def __init__(
        self,
        controller: ToController,
        control_plane: ToController,
        broker_id: int,
        broker_epoch: Callable[[], int],
        ibp: InterBrokerProtocol = LATEST_IBP,
    ) -> None:
        self._controller = controller
        self._control_plane = control_plane
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._shutdown_version = controlled_shutdown_version(ibp)

    async def allocate_producer_ids(self) -> range | None:
        """Ask for a new block of ids; None if there is none now, for a reason that is logged."""
        fields = {"broker_id": self._broker_id, "broker_epoch": self._broker_epoch()}
        try:
            answer = await self._control_plane.request(ALLOCATE_PRODUCER_IDS, 0, fields)
        except (LinkError, CorruptData) as error:
            log.info("no producer ids yet, trying again", error=str(error))
            return None
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE and answer.producer_id_len > 0:
            start = answer.producer_id_start
            return range(start, start + answer.producer_id_len)
        log.info("no producer ids yet, trying again", error=code.name)
        if code is ErrorCode.NOT_CONTROLLER:
            self._control_plane.close()
        return None

    async def controlled_shutdown(self, tries: int, backoff_ms: int) -> bool:
        """Ask the controller to move leadership off this broker; False if it has not after all tries (facts §8)."""
        for left in reversed(range(tries)):
            fields = {"broker_id": self._broker_id, "broker_epoch": self._broker_epoch()}
            try:
                answer = await self._controller.request(CONTROLLED_SHUTDOWN, self._shutdown_version, fields)
                code, remaining = ErrorCode(answer.error_code), len(answer.remaining_partitions)
            except (LinkError, CorruptData) as error:
                code, remaining = ErrorCode.NETWORK_EXCEPTION, -1
                log.info("controlled shutdown: cannot reach the controller", error=str(error))
            if code is ErrorCode.NONE and remaining == 0:
                return True
            log.info(
                "controlled shutdown: leadership has not moved yet",
                error=code.name,
                still_led=remaining,
                tries_left=left,
            )
            self._controller.close()
            if left:
                await asyncio.sleep(backoff_ms / 1000)
        return False
