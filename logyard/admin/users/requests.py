"""Requests about SCRAM users (APIs 50 and 51); sent by `cluster/requests.py`."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from logyard.admin.cluster import translation
from logyard.admin.users.users import NewPassword
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.znodes.scram_credentials import DIGESTS, MECHANISMS

_SALT_BYTES = 24
_NUMBERS = {name: number for number, name in MECHANISMS.items()}


class UserSender(Protocol):
    """The part of `requests.ClusterRequests` that is needed."""

    def ask(self, make: Callable[[], Any], node: int | None = None) -> Any: ...
    def ask_controller(self, make: Callable[[], Any], codes: Callable[[Any], Sequence[int]]) -> Any: ...


def describe(sender: UserSender, users: Sequence[str] = ()) -> dict[str, dict[str, int]]:
    """User → mechanism → iterations, of these users or of all; without those that have no credential.

    Raises ApiError (CLUSTER_AUTHORIZATION_FAILED), ClusterUnreachable.
    """
    from kafka.protocol.admin import DescribeUserScramCredentialsRequest

    wanted = [(user,) for user in users] or None
    answer = sender.ask(lambda: DescribeUserScramCredentialsRequest(users=wanted))
    translation.refuse(answer.error_code, answer.error_message)
    found = {}
    for one in answer.results:
        translation.refuse(one.error_code, one.error_message, unless=ErrorCode.RESOURCE_NOT_FOUND)
        if one.credential_infos:
            found[one.user] = {MECHANISMS.get(c.mechanism, "UNKNOWN"): c.iterations for c in one.credential_infos}
    return found


def alter(
    sender: UserSender, upsert: Sequence[NewPassword], delete: Mapping[str, Sequence[str]]
) -> dict[str, ApiError | None]:
    """Set credentials, and remove others (user → mechanisms); returns each user's error, or None.

    Raises BadUser, ClusterUnreachable. A user's changes are made together, or none of them.
    """
    from kafka.protocol.admin import AlterUserScramCredentialsRequest

    upsertions = [_upsertion(one.check()) for one in upsert]
    deletions = [(user, _NUMBERS[mechanism]) for user, chosen in delete.items() for mechanism in chosen]
    answer = sender.ask_controller(
        lambda: AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions),
        lambda response: [one.error_code for one in response.results],
    )
    return {one.user: translation.problem(one.error_code, one.error_message) for one in answer.results}


def _upsertion(one: NewPassword) -> tuple[str, int, int, bytes, bytes]:
    salt = os.urandom(_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(DIGESTS[one.mechanism], one.password.encode(), salt, one.iterations)
    return one.user, _NUMBERS[one.mechanism], one.iterations, salt, salted
