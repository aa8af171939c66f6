"""How requests are sent by kafka-python (pinned): to any broker, to the controller, to the witnesses; again if need be.

kafka-python 3.0.12 remembers a dead controller and fails for ever; here the controller is looked up for each request.
"""

import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from logyard.admin.cluster import connection, translation
from logyard.admin.ports import AccessRefused, ClusterUnreachable
from logyard.admin.settings import ClusterSettings
from logyard.broker.errors import ApiError, ErrorCode
from logyard.login.meanings import plain, silence

DESCRIBE_QUORUM = 55  # only brokers of a KRaft cluster offer it
RETRY_PAUSE_S = 0.25
SPREADING_S = 3.0
_OTHERS_ASKED = 2


class Asking:
    """One connection to a cluster; connects at the first request. Not for several threads at once."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._opened: connection.Connection | None = None
        self._silent: set[int] = set()  # leaders that gave no answer, when many were asked at once

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _connection(self) -> connection.Connection:
        if self._opened is None:
            self._opened = connection.connect(self._settings, self._settings.bootstrap, self._settings.total_timeout_s)
        return self._opened

    @property
    def _admin(self) -> Any:
        return self._connection.admin

    @property
    def _timeout_ms(self) -> int:
        return round(self._settings.request_timeout_s * 1000)

    def _metadata(self, topics: Sequence[str] | None, node: int | None = None) -> Any:
        """A Metadata response of that broker (None: any); None asks for all topics."""
        from kafka.protocol.metadata import MetadataRequest

        named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        answer = self._connection.send(MetadataRequest(topics=named, allow_auto_topic_creation=False), node)
        if not answer.brokers:
            # It has just started, and no controller has told it anything: not even which topics there are.
            raise _KnowsNothing("the broker that was asked knows no brokers yet")
        return answer

    def _witnesses(self, topics: Sequence[str] | None, timeout_s: float | None = None) -> dict[str, Any]:
        """Metadata as the controller's broker has it; where it lacks something, no other may know another controller.

        Without topics it is asked for its brokers, and nobody knows which it lacks.

        In a KRaft cluster, where Metadata names any broker as controller: as all brokers have it, put together, once
        they know the same topic of each name that is asked for.
        """

        def once() -> dict[str, Any]:
            if self._connection.offers(DESCRIBE_QUORUM):
                asked = [self._metadata(topics, broker.node_id) for broker in self._metadata([]).brokers]
                answers = [answer.to_dict() for answer in asked]
                if topics is not None and (disputed := translation.disputed(answers)):
                    raise _KnowsNothing(f"brokers know different topics of the name {disputed[0]}")
                return translation.joined(answers)
            controller = self._controller()
            answer = self._metadata(topics, controller)
            if answer.controller_id != controller:
                raise _NoController(f"broker {controller} is no longer controller")
            found: dict[str, Any] = answer.to_dict()
            if not topics or translation.unknown(found):
                self._require_no_other(controller, [broker.node_id for broker in answer.brokers])
            return found

        result: dict[str, Any] = self._repeat(once, timeout_s)
        return result

    def _require_no_other(self, controller: int, brokers: Sequence[int]) -> None:
        """Raise _NoController if another broker knows another controller.

        A broker that was controller and has lost ZooKeeper alone goes on to say that it is, and hears of no new topic.
        """
        from kafka import errors as theirs

        for broker in [broker for broker in sorted(brokers) if broker != controller][:_OTHERS_ASKED]:
            try:
                said = int(self._metadata([], broker).controller_id)
            except (_KnowsNothing, theirs.KafkaError):
                continue  # it cannot tell, or not this client
            if said != controller:
                raise _NoController(f"broker {broker} knows another controller than broker {controller}")
            return

    def _controller(self) -> int:
        """The id of the controller, as any broker knows it."""
        controller = int(self._metadata([]).controller_id)
        if controller < 0:
            raise _NoController("the cluster has no controller now")
        return controller

    def _to_controller(
        self, make: Callable[[], Any], codes: Callable[[Any], Iterable[int]], timeout_s: float | None = None
    ) -> Any:
        """Send a request to the current controller; look it up again if that broker is not it or does not answer."""

        def once() -> Any:
            controller = self._controller()
            response = self._connection.send(make(), controller)
            if ErrorCode.NOT_CONTROLLER in list(codes(response)):
                raise _NoController(f"broker {controller} is no longer controller")
            return response

        return self._repeat(once, timeout_s)

    def _repeat(self, ask: Callable[[], Any], timeout_s: float | None = None) -> Any:
        """Call until it answers or the time is over; connection errors and a missing controller are retried."""
        from kafka import errors as theirs

        started = time.monotonic()
        deadline = started + (self._settings.total_timeout_s if timeout_s is None else timeout_s)
        while True:
            try:
                return ask()
            except _NoController as problem:
                last: Exception = ApiError(ErrorCode.NOT_CONTROLLER, str(problem))
            except _KnowsNothing as problem:
                last = ClusterUnreachable(f"the cluster did not answer: {problem}")
            except theirs.SaslAuthenticationFailedError as problem:
                raise AccessRefused(f"the login of {self._settings.username!r} is refused: {plain(problem)}") from None
            except theirs.BrokerResponseError as problem:
                last = translation.api_error(problem)
                # A new topic may not have reached the broker that was asked; after this time it does not exist.
                unknown = last.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if not problem.retriable or (unknown and time.monotonic() - started > SPREADING_S):
                    raise last from None
            except theirs.KafkaError as problem:
                last = ClusterUnreachable(f"the cluster did not answer: {silence(problem)}")
            except (struct.error, UnicodeError, OverflowError) as problem:
                if "unpack" not in str(problem) and not isinstance(problem, UnicodeDecodeError):
                    # A number or a text that requests have no room for, and will not have at the next try.
                    raise ApiError(ErrorCode.INVALID_REQUEST, f"no request can say this: {problem}") from None
                last = ClusterUnreachable(f"the cluster did not answer: its answer cannot be read ({problem})")
            if time.monotonic() >= deadline:
                raise last
            # Brokers may have moved or come back: refresh the list of addresses.
            self._connection.refresh()
            time.sleep(RETRY_PAUSE_S)


class _NoController(Exception):
    """There is no controller now, or it is another broker than the one that was asked."""


class _KnowsNothing(Exception):
    """A broker answers that no controller has told it about the cluster, or about a topic, yet."""
