"""AlterUserScramCredentials (51): sets and deletes users' SCRAM credentials (KIP-554), at the controller.

A client sends salted passwords, so that nothing slow is computed here. A credential is written into the user's znode
beside the quotas, on condition of the version that was read. One fault makes all changes of that user fail, and none of
another's. Rights: Alter on the cluster, after NOT_CONTROLLER (facts §18.1, §18.5).
"""

from typing import Any, NamedTuple

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server.api import Handler
from logyard.broker.server.config_fields import change_overrides
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.znodes import configs
from logyard.broker.znodes.scram_credentials import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, ScramCredential

# The longest salt or salted password that is hashed on the event loop, some milliseconds; a client sends 64 bytes.
BYTES_MAX = 1 << 20


class Change(NamedTuple):
    """One deletion (`credential` is None) or setting of a credential; `refusal` is why it is not even tried."""

    user: str
    mechanism: int
    credential: Any = None
    refusal: ApiError | None = None


async def handle(services: Services, request: Request, message: Any) -> Fields:
    if not services.controller.is_active:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    pauses = Pauses(services)
    by_user: dict[str, list[Change]] = {}
    async for each in pauses.between(message.deletions):
        change = Change(each.name, each.mechanism, None, _refusal(each, None))
        by_user.setdefault(each.name, []).append(change)
    async for each in pauses.between(message.upsertions):
        change = Change(each.name, each.mechanism, each, _refusal(each, each.iterations))
        by_user.setdefault(each.name, []).append(change)
    altered = pauses.between(by_user.items())
    return {"results": [await _alter(services, pauses, user, made) async for user, made in altered]}


def _refusal(asked: Any, iterations: int | None) -> ApiError | None:
    if not asked.name:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if asked.mechanism not in MECHANISMS:
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if iterations is None:
        return None
    if iterations < ITERATIONS_MIN:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations > ITERATIONS_MAX:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if max(len(asked.salt), len(asked.salted_password)) > BYTES_MAX:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"A salt or salted password of over {BYTES_MAX} bytes")
    return None


async def _alter(services: Services, pauses: Pauses, user: str, changes: list[Change]) -> dict[str, Any]:
    try:
        # The last one counts, as in Kafka, where those to be set come after those to be deleted.
        for change in reversed(changes):
            await pauses.after(1)
            if change.refusal is not None:
                raise change.refusal
        if max((await pauses.counted(change.mechanism for change in changes)).values()) > 1:
            raise ApiError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        await services.turns.next()
        credentials = {MECHANISMS[change.mechanism]: _credential(change) for change in changes}
        await change_overrides(
            services.zk,
            configs.USERS,
            configs.sanitize(user),
            lambda settings: _changed(settings, credentials),
            lambda settings: None,
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
        )
    except ApiError as refusal:
        return _result(user, refusal.code, refusal.message)
    return _result(user, ErrorCode.NONE, None)


def _credential(change: Change) -> str | None:
    asked = change.credential
    if asked is None:
        return None
    mechanism = MECHANISMS[change.mechanism]
    return ScramCredential.of(mechanism, bytes(asked.salt), bytes(asked.salted_password), asked.iterations).text()


def _changed(settings: dict[str, str], credentials: dict[str, str | None]) -> dict[str, str]:
    for mechanism, credential in credentials.items():
        if credential is not None:
            settings[mechanism] = credential
        elif settings.pop(mechanism, None) is None:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return settings


def _result(user: str, code: ErrorCode, text: str | None) -> dict[str, Any]:
    return {"user": user, "error_code": int(code), "error_message": text}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    users = sorted({each.name for each in (*message.deletions, *message.upsertions)})
    return {"results": [_result(user, code, text) for user in users]}


HANDLER = Handler(message=handle, error=error)
