"""DeleteGroups (42): deletes empty groups with their offsets; a group that has members gets NON_EMPTY_GROUP."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses, parts_of_name
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses, need = Pauses(services), RIGHTS[request.api_key].group
    may_delete = await authorization.allowed_of_many(services, request, pauses, need, message.groups_names)
    results = []
    async for group_id in pauses.between(await pauses.counted(message.groups_names)):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if group_id in may_delete:
            await pauses.after(parts_of_name(group_id))
            code = await services.groups.commits.delete_group(group_id)
        results.append({"group_id": group_id, "error_code": int(code)})
    return {"results": results}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"results": [{"group_id": group_id, "error_code": int(code)} for group_id in message.groups_names]}


HANDLER = Handler(message=handle, error=error)
