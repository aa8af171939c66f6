"""Errors of brokers are told in words; no code reaches who gave a command."""

import re

import pytest
from kafka import errors as theirs

from logyard.admin.cluster import translation
from logyard.admin.errors import ApiError, ErrorCode, told
from logyard.login.meanings import meaning, plain, unanswered

NAME = re.compile(r"[A-Z]{3,}_[A-Z_]+")


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_a_sentence_of_its_own(code: ErrorCode) -> None:
    text = meaning(code)
    assert NAME.search(text) is None
    assert len(text.split()) > 2
    assert not text.endswith(".")
    assert [other for other in ErrorCode if meaning(other) == text] == [code]


def test_a_code_of_a_later_kafka_is_told_by_its_number() -> None:
    assert meaning(999) == "the broker answers with error 999, which is not known here"


def test_what_a_broker_tells_counts_more() -> None:
    found = translation.problem(ErrorCode.NON_EMPTY_GROUP, "it has 3 members")
    assert str(found) == "it has 3 members"
    assert translation.problem(0, None) is None
    with pytest.raises(ApiError, match=r"^the group does not exist$"):
        translation.refuse(ErrorCode.GROUP_ID_NOT_FOUND, None)


def test_errors_of_the_library_are_told_in_the_same_words() -> None:
    assert str(translation.api_error(theirs.GroupIdNotFoundError())) == "the group does not exist"
    assert plain(theirs.SaslAuthenticationFailedError("a bad password")) == "the log-in is refused (a bad password)"
    twice = theirs.SaslAuthenticationFailedError("SaslAuthenticationFailedError: a bad password")
    assert plain(twice) == "the log-in is refused (a bad password)"
    assert plain(theirs.KafkaConnectionError("socket disconnected")) == "socket disconnected"
    assert plain(theirs.KafkaTimeoutError("Unable to bootstrap from ['h:1']")) == "no answer in time"
    assert unanswered(theirs.ClusterAuthorizationFailedError()) == "access to the cluster is denied"
    assert unanswered(theirs.NodeNotReadyError("3")) == "no connection to broker 3"
    found = translation.api_error(theirs.InvalidConfigurationError("x: 5"))
    assert (found.code, str(found)) == (ErrorCode.INVALID_CONFIG, "a setting has a value that is not possible (x: 5)")
    assert told(translation.api_error(theirs.TopicAuthorizationFailedError())) == (
        "access to the topic is denied: this login lacks a right on the topic; who may alter the cluster gives it:"
        " logyard acls add"
    )
