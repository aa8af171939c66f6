"""AddPartitionsToTxn between brokers over a real connection: its versions, its answers, and lost connections."""

from dataclasses import replace
from typing import Any

import pytest

from logyard.broker.client.verification_requests import VerificationRequests
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import BrokerInfo, TopicPartition
from logyard.broker.replication.ports import LinkError
from logyard.broker.transactions.verification import Question, VerificationNotOffered
from tests.support.scripted_broker import Answer, Asked, Hang, HangUp, ScriptedBroker

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
QUESTIONS = [Question("a", 7, 3, (T0, U0, T1)), Question("b", 8, 0, (T0,))]


class Coordinator:
    """Offers AddPartitionsToTxn up to `version`; answers with `answer`, by default that all is well."""

    def __init__(self, version: int = 5) -> None:
        self.version = version
        self.answer: Answer | None = None

    def __call__(self, asked: Asked) -> Answer:
        if asked.api_key == 18:
            apis = [{"api_key": 0, "min_version": 0, "max_version": 11}]
            if self.version >= 0:
                apis.append({"api_key": 24, "min_version": 0, "max_version": self.version})
            return {"error_code": 0, "api_keys": apis}
        if self.answer is not None:
            return self.answer
        results = [{"transactional_id": t.transactional_id, "topic_results": []} for t in asked.body.transactions]
        return {"error_code": 0, "results_by_transaction": results}


def requests(timeout_s: float = 5.0) -> VerificationRequests:
    return VerificationRequests("PLAINTEXT", "broker-9", timeout_s)


@pytest.mark.parametrize(("offered", "sent"), [(4, 4), (5, 5), (9, 5)])
async def test_many_transactions_are_asked_about_at_once(offered: int, sent: int) -> None:
    async with ScriptedBroker(Coordinator(offered)) as broker:
        ask = requests()
        assert await ask(broker.info, QUESTIONS) == {"a": {}, "b": {}}
        assert await ask(broker.info, QUESTIONS) == {"a": {}, "b": {}}
        assert [(a.api_key, a.version) for a in broker.asked] == [(18, 0), (24, sent), (24, sent)]
        assert broker.asked[0].client_id == "broker-9"
        first, second = broker.asked[1].body.transactions
        topics = [(t.name, list(t.partitions)) for t in first.topics]
        assert (first.producer_id, first.producer_epoch, first.verify_only) == (7, 3, True)
        assert topics == [("t", [0, 1]), ("u", [0])]
        assert (second.transactional_id, second.verify_only) == ("b", True)
        ask.close()


async def test_partitions_are_added_where_the_question_says_so() -> None:
    async with ScriptedBroker(Coordinator()) as broker:
        ask = requests()
        await ask(broker.info, [QUESTIONS[0], replace(QUESTIONS[1], adds=True)])
        assert [t.verify_only for t in broker.asked[-1].body.transactions] == [True, False]
        ask.close()


@pytest.mark.parametrize("offered", [3, -1])
async def test_an_old_broker_is_not_asked(offered: int) -> None:
    async with ScriptedBroker(Coordinator(offered)) as broker:
        ask = requests()
        for _ in range(2):
            with pytest.raises(VerificationNotOffered):
                await ask(broker.info, QUESTIONS)
        assert [a.api_key for a in broker.asked] == [18]
        ask.close()


async def test_a_broker_that_was_upgraded_is_asked_what_it_offers() -> None:
    script = Coordinator(3)
    async with ScriptedBroker(script) as broker:
        ask = requests()
        with pytest.raises(VerificationNotOffered):
            await ask(broker.info, QUESTIONS)
        await broker.stop()
        script.version = 5
        await broker.start()
        found: Any = None
        for _ in range(3):  # the lost connection may be noticed by the first request on it
            try:
                found = await ask(broker.info, QUESTIONS)
                break
            except (LinkError, VerificationNotOffered):
                continue
        assert found == {"a": {}, "b": {}}
        ask.close()


async def test_errors_are_told_by_partition_and_as_a_whole() -> None:
    script = Coordinator()
    async with ScriptedBroker(script) as broker:
        ask = requests()
        parts = [{"partition_index": 0, "partition_error_code": 0}, {"partition_index": 1, "partition_error_code": 120}]
        later = [{"partition_index": 0, "partition_error_code": 9999}]
        topics = [{"name": "t", "results_by_partition": parts}, {"name": "u", "results_by_partition": later}]
        result = {"transactional_id": "a", "topic_results": topics}
        script.answer = {"error_code": 0, "results_by_transaction": [result]}
        found = await ask(broker.info, QUESTIONS)
        assert found == {"a": {T1: ErrorCode.TRANSACTION_ABORTABLE, U0: ErrorCode.UNKNOWN_SERVER_ERROR}}
        script.answer = {"error_code": 31, "results_by_transaction": []}
        with pytest.raises(ApiError) as refused:
            await ask(broker.info, QUESTIONS)
        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        ask.close()


@pytest.mark.parametrize("answer", [Hang(), HangUp()])
async def test_no_answer_is_a_lost_link_and_the_next_question_finds_a_new_one(answer: Answer) -> None:
    script = Coordinator()
    async with ScriptedBroker(script) as broker:
        ask = requests(0.1)
        script.answer = answer
        with pytest.raises(LinkError):
            await ask(broker.info, QUESTIONS)
        script.answer = None
        assert await ask(broker.info, QUESTIONS) == {"a": {}, "b": {}}
        assert broker.connections == 2
        ask.close()


async def test_brokers_that_cannot_be_reached() -> None:
    ask = requests()
    with pytest.raises(LinkError, match="no endpoint"):
        await ask(BrokerInfo(1, ()), QUESTIONS)
    async with ScriptedBroker(Coordinator()) as broker:
        pass
    with pytest.raises(LinkError):
        await ask(broker.info, QUESTIONS)


async def test_a_broker_that_moved_is_asked_where_it_is_now() -> None:
    async with ScriptedBroker(Coordinator()) as first, ScriptedBroker(Coordinator()) as second:
        ask = requests()
        await ask(first.info, QUESTIONS)
        await ask(second.info, QUESTIONS)
        assert (len(first.asked), len(second.asked)) == (2, 2)
        ask.close()
