"""DeleteGroups (42): deletes empty groups with their offsets; a group that has members gets NON_EMPTY_GROUP."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    may_delete = authorization.allowed(services, request, RIGHTS[request.api_key].group, message.groups_names)
    codes = {
        group_id: await services.groups.commits.delete_group(group_id)
        if group_id in may_delete
        else ErrorCode.GROUP_AUTHORIZATION_FAILED
        for group_id in message.groups_names
    }
    return {"results": [{"group_id": group_id, "error_code": int(code)} for group_id, code in codes.items()]}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"results": [{"group_id": group_id, "error_code": int(code)} for group_id in message.groups_names]}


HANDLER = Handler(message=handle, error=error)
