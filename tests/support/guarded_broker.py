"""A broker of ours with PLAIN and ACLs, in a thread, for stock clients: `admin` may do everything, the others nothing.

with GuardedBroker(tmp_path) as broker:
    broker.allow(broker.acl(ResourceType.TOPIC, "flights", AclOperation.READ))     # alice
    consumer = broker.consumer("readers")
"""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support.inside_broker import InsideBroker

USERS = ("admin", "alice", "bob")
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "num.partitions": "1",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "x.PlainLoginModule required "
    + " ".join(f'user_{name}="{name}-pw"' for name in USERS)
    + ";",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}


class GuardedBroker:
    """One broker with ACLs on a loop of its own, in a thread; admin may do everything."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._started, self._ended = directory, threading.Event(), asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self.port = 0

    def __enter__(self) -> "GuardedBroker":
        self._thread.start()
        assert self._started.wait(60)
        self.admin = AdminClient(self.options("admin"))
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        async with InsideBroker(self._directory, SETTINGS) as broker:
            while not broker.components.controller.is_active:
                await asyncio.sleep(0.01)
            self.port = broker.port_of("SASL_PLAINTEXT")
            self._started.set()
            await self._ended.wait()

    def options(self, user: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": user,
            "sasl.password": f"{user}-pw",
            "log_level": 0,
            **more,
        }

    def kafka_python(self) -> dict[str, Any]:
        """Options of kafka-python for alice."""
        return {
            "bootstrap_servers": f"127.0.0.1:{self.port}",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "alice-pw",
        }

    def create(self, topic: str, partitions: int = 1, events: int = 0) -> str:
        self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
        producer = Producer(self.options("admin"))
        for number in range(events):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(20) == 0
        return topic

    def acl(
        self,
        kind: ResourceType,
        name: str,
        operation: AclOperation,
        *,
        user: str = "alice",
        host: str = "*",
        prefixed: bool = False,
        deny: bool = False,
    ) -> AclBinding:
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
        return AclBinding(kind, name, pattern, f"User:{user}", host, operation, permission)

    def allow(self, *acls: AclBinding) -> None:
        for made in self.admin.create_acls(list(acls)).values():
            made.result(20)

    def take_away(self, *acls: AclBinding) -> None:
        wanted = [
            AclBindingFilter(
                acl.restype,
                acl.name,
                acl.resource_pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for acl in acls
        ]
        for made in self.admin.delete_acls(wanted).values():
            assert made.result(20)

    def consumer(self, group: str, user: str = "alice", more: dict[str, Any] | None = None) -> Consumer:
        fixed = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "group.id": group}
        return Consumer(self.options(user, **{**fixed, **(more or {})}))


def read(consumer: Consumer, count: int, timeout_s: float = 20) -> list[bytes] | str:
    """Return that many records, or the name of the first error."""
    found: list[bytes] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            return str(message.error().name())
        found.append(message.value())
    return found


def refused(ask: Callable[..., Any], *arguments: Any) -> str:
    """Return the name of the error that asking raises."""
    with pytest.raises(KafkaException) as caught:
        ask(*arguments)
    return str(caught.value.args[0].name())
