"""Opens kafka-python's admin client (pinned), for commands, tasks and Spark's jobs.

Faults of kafka-python 3.0.12 that this avoids:
- if its constructor fails, it leaves a thread behind; here that thread is stopped;
- its back-off for a broker that was down grows to 30 s; here to 1 s;
- it leaves the sockets of connections that it could not make to the garbage collector (`failed_sockets.py`);
- it drops what a broker has sent just before it closed the connection: the refusal of a login (`last_words.py`);
- it takes a null where the protocol has none, and stumbles on it later: such an answer is none (`nulls.py`);
- it repeats a login with a refused password and then reports a time-out; here a refused login ends the attempt and is
  reported as such (`_Client`);
- it connects again and again to a server that hangs up, as listeners for other protocols do; here, with `hasty`, twice.
"""

import logging
from typing import Any, NamedTuple
from weakref import WeakSet

from logyard.login import kafka_python
from logyard.login.library.failed_sockets import direct
from logyard.login.library.last_words import hear_last_words
from logyard.login.library.nulls import misplaced_null
from logyard.login.security import Security

_HASTY_CONNECTIONS = 2


class Opened(NamedTuple):
    """kafka-python's admin client, with the calls that it makes for its users, and the manager of connections that it
    sends requests by."""

    admin: Any
    manager: Any


def open_admin(
    security: Security,
    server: str,
    *,
    request_timeout_s: float,
    timeout_s: float,
    client_id: str = "logyard-admin",
    hasty: bool = False,
) -> Opened:
    """Open the admin client by that server alone, within `timeout_s`, with `hasty` only until a second connection is
    lost. Raises kafka-python's errors, with their causes, BadSettings, and NoToken by the token endpoint."""
    from kafka import KafkaAdminClient

    login = kafka_python.options(security)
    quiet = logging.getLogger("kafka")
    if quiet.level == logging.NOTSET:
        quiet.setLevel(logging.WARNING)  # it logs every connection, in every task's log
    client = _Client(hasty=hasty)
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=[server],
            client_id=client_id,
            request_timeout_ms=round(request_timeout_s * 1000),
            bootstrap_timeout_ms=round(timeout_s * 1000),
            reconnect_backoff_max_ms=1000,
            proxy_url=direct(),
            kafka_client=client.make,
            **login,
        )
    except BaseException as problem:
        # The constructor has started a thread by now and would leave it running.
        reason = client.stop()
        # "Unable to bootstrap" gives no reason; the error of the last connection does.
        if reason is not None and reason is not problem:
            raise problem from reason
        raise
    return Opened(admin, client.manager)


def readable(answered: Any) -> Any:
    """A future of kafka-python, as another one that fails where the answer does not keep to the protocol."""
    from kafka import errors as theirs
    from kafka.future import Future

    read = Future()

    def look(answer: Any) -> None:
        try:
            field = misplaced_null(answer)
        except Exception as problem:
            read.failure(problem)
            return
        if field is None:
            read.success(answer)
        else:
            read.failure(theirs.KafkaProtocolError(f"its answer cannot be read ({field} is null)"))

    answered.add_callback(look)
    answered.add_errback(read.failure)
    return read


def is_refused_login(problem: BaseException) -> bool:
    from kafka import errors as theirs

    return isinstance(problem, theirs.SaslAuthenticationFailedError)


class _Client:
    """Creates kafka-python's client for its admin client, and keeps its parts, to stop them and to send requests."""

    def __init__(self, *, hasty: bool) -> None:
        self.manager: Any = None
        self._hasty = hasty
        self._made: Any = None
        self._net: Any = None

    def make(self, **configs: Any) -> Any:
        """Create kafka-python's client, with a manager that keeps why a connection failed; kafka-python only logs
        that."""
        from kafka.net.compat import KafkaNetClient
        from kafka.net.manager import KafkaConnectionManager
        from kafka.net.selector import NetworkSelector

        hasty = self._hasty

        class Manager(KafkaConnectionManager):  # type: ignore[misc]
            last_failure: Exception | None = None
            made = 0

            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **options)
                self.refused_logins: dict[Any, Exception] = {}
                self.watched: WeakSet[Any] = WeakSet()

            def maybe_raise_auth_failure(self, node_id: Any) -> None:
                if node_id in self.refused_logins:
                    raise self.refused_logins[node_id]
                is_lost = self.made >= _HASTY_CONNECTIONS and node_id not in self._conns
                if hasty and is_lost and not self.bootstrapped and self.last_failure is not None:
                    raise self.last_failure

            async def _build_transport(self, *arguments: Any, **options: Any) -> Any:
                return hear_last_words(await super()._build_transport(*arguments, **options))

            def send(self, *arguments: Any, **options: Any) -> Any:
                return readable(super().send(*arguments, **options))

            def get_connection(self, node_id: Any, *arguments: Any, **options: Any) -> Any:
                connection = super().get_connection(node_id, *arguments, **options)
                if connection not in self.watched:
                    self.watched.add(connection)
                    self.made += 1

                    def keep(problem: Exception) -> None:
                        self.last_failure = problem
                        if is_refused_login(problem):
                            self.refused_logins[node_id] = problem

                    connection.init_future.add_errback(keep)
                    connection.close_future.add_errback(keep)
                return connection

        self._net = NetworkSelector(**configs)
        self.manager = Manager(self._net, **configs)
        self._made = KafkaNetClient(net=self._net, manager=self.manager, **configs)
        return self._made

    def stop(self) -> Exception | None:
        """Stop the parts; returns why the last connection failed."""
        if self._made is None:
            return None
        self._made.close()
        self._net.stop()
        reason: Exception | None = self.manager.last_failure
        return reason
