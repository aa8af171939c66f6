"""A whole broker inside this process, and a transactions' coordinator beside it that a test scripts.

`async with TransactionalBroker(directory) as world`: `world(api, ...)` asks the broker, `world.coordinator` says which
partitions are in which transaction, and may be made to wait, refuse or fail.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import BrokerInfo, TopicPartition
from logyard.broker.protocol import codec
from logyard.broker.records import batch
from logyard.broker.server.api_table import APIS
from logyard.broker.server.request import Session
from logyard.broker.transactions.verification import Answers, Question, Questions, Verification
from logyard.broker.transactions.verification_figures import VerificationFigures
from tests.support.inside_broker import InsideBroker

KEYS = {api.name: key for key, api in APIS.items()}
OF_3_9 = {"Produce": 11, "WriteTxnMarkers": 1, "TxnOffsetCommit": 4}
"""The highest versions of clients that do not go by `transaction.version` 2: asked where no version is named."""
TOPIC, GROUP, ID, PID = "t", "g", "id", 4711


class ScriptedCoordinator:
    """Answers `verify_only` questions. `asked`: every request, each a list of questions.

    `held`: requests wait until `release`. `refusing`: an error for all. `failing`: what a request raises.
    """

    def __init__(self) -> None:
        self.asked: list[Sequence[Question]] = []
        self.refusing = ErrorCode.NONE
        self.failing: Exception | None = None
        self._open = asyncio.Event()
        self._open.set()

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def __call__(self, broker: BrokerInfo, questions: Sequence[Question], /) -> Answers:
        self.asked.append(questions)
        await self._open.wait()
        if self.failing is not None:
            raise self.failing
        refused: Any = {} if self.refusing is ErrorCode.NONE else self.refusing
        return {
            q.transactional_id: dict.fromkeys(q.partitions, refused) if isinstance(refused, ErrorCode) else {}
            for q in questions
        }


class TransactionalBroker:
    """See the head of this file."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None, partitions: int = 2) -> None:
        self.inside = InsideBroker(directory, {"offsets.topic.num.partitions": "4", **(settings or {})})
        self.coordinator = ScriptedCoordinator()
        self.session = Session(1, "PLAINTEXT", "127.0.0.1")
        self._partitions = partitions

    async def __aenter__(self) -> "TransactionalBroker":
        await self.inside.__aenter__()
        parts = self.inside.components
        itself = BrokerInfo(1, ())
        questions = Questions(
            lambda _: itself,
            self.coordinator,
            asyncio.get_running_loop().create_future,
            VerificationFigures(lambda: 0.0),
        )
        switch = parts.store.logs.verification
        parts.services.verification = Verification(parts.replicas.producing, questions, switch, asyncio.sleep)
        await self.inside.create_topic(TOPIC, self._partitions)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.coordinator.release()
        await self.inside.__aexit__(*error)

    async def __call__(self, api: str, /, version: int | None = None, **fields: Any) -> Any:
        key = KEYS[api]
        version = OF_3_9.get(api, APIS[key].versions[1]) if version is None else version
        frame = memoryview(bytearray(codec.encode_request(key, version, 7, "c", fields)))[4:]
        answer: Any = self.inside.components.dispatcher(self.session, frame)
        if isinstance(answer, asyncio.Future):
            answer = await asyncio.wait_for(answer, 30)
        whole = b"".join(answer) if isinstance(answer, list) else answer
        return codec.decode_response(key, version, memoryview(whole)[4:])[1]

    # Data

    def log(self, partition: int = 0, topic: str = TOPIC) -> Any:
        """The partition's log."""
        return self.inside.components.store.logs.get(TopicPartition(topic, partition))

    async def produce(
        self,
        sequence: int,
        *,
        partitions: Sequence[int] = (0,),
        epoch: int = 0,
        producer_id: int = PID,
        transactional_id: str | None = ID,
        transactional: bool = True,
        version: int | None = None,
        acks: int = -1,
    ) -> dict[int, ErrorCode]:
        """Produce one record to each partition; returns the codes by partition."""
        made = batch.build(
            [batch.Record(0, 1_700_000_000_000, b"k", b"v")],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        parts = [{"index": n, "records": bytes(made)} for n in partitions]
        answer = await self(
            "Produce",
            version,
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=5000,
            topic_data=[{"name": TOPIC, "partition_data": parts}],
        )
        told = [part for topic in answer.responses for part in topic.partition_responses]
        return {part.index: ErrorCode(part.error_code) for part in told}

    async def plain(self, *, partitions: Sequence[int] = (0,)) -> dict[int, ErrorCode]:
        """Produce without a transaction and a producer id."""
        return await self.produce(
            -1, partitions=partitions, transactional=False, transactional_id=None, producer_id=-1, epoch=-1
        )

    async def end(
        self,
        *partitions: int,
        committed: bool = True,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        producer_id: int = PID,
        topic: str = TOPIC,
        version: int = 1,
        transaction_version: int = 0,
    ) -> dict[int, ErrorCode]:
        """Have markers written; returns the codes by partition."""
        marker = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "transaction_result": committed,
            "topics": [{"name": topic, "partition_indexes": list(partitions)}],
            "coordinator_epoch": coordinator_epoch,
            "transaction_version": transaction_version,
        }
        (answer,) = (await self("WriteTxnMarkers", version, markers=[marker])).markers
        assert answer.producer_id == producer_id
        return {p.partition_index: ErrorCode(p.error_code) for t in answer.topics for p in t.partitions}

    # Offsets

    async def led_group(self, group: str = GROUP) -> int:
        """Wait until the group's coordinator answers for it; returns its partition of the offsets log."""
        async with asyncio.timeout(30):
            while (await self("FindCoordinator", coordinator_keys=[group], key_type=0)).coordinators[0].error_code:
                await asyncio.sleep(0.02)
            groups = self.inside.components.coordinators.groups
            while groups.availability(group) is not ErrorCode.NONE:
                await asyncio.sleep(0.02)
        return groups.partition_for(group)

    async def commit_in_transaction(
        self, offset: int, *, partition: int = 0, group: str = GROUP, version: int | None = None, **fields: Any
    ) -> ErrorCode:
        asked: dict[str, Any] = {
            "transactional_id": ID,
            "group_id": group,
            "producer_id": PID,
            "producer_epoch": 0,
            "topics": [
                {
                    "name": TOPIC,
                    "partitions": [
                        {"partition_index": partition, "committed_offset": offset, "committed_metadata": "m"}
                    ],
                }
            ],
        }
        answer = await self("TxnOffsetCommit", version, **{**asked, **fields})
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def committed(self, *, group: str = GROUP, stable: bool = False, partition: int = 0) -> tuple[ErrorCode, int]:
        topics = [{"name": TOPIC, "partition_indexes": [partition]}]
        answer = await self("OffsetFetch", 8, groups=[{"group_id": group, "topics": topics}], require_stable=stable)
        (found,) = answer.groups[0].topics[0].partitions
        return ErrorCode(found.error_code), found.committed_offset
