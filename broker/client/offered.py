"""Which version of an API a broker offers, asked over a link to it."""

from logyard.broker.client.link import Link
from logyard.broker.errors import ErrorCode
from logyard.broker.replication.ports import LinkError

API_VERSIONS = 18


async def highest_offered(link: Link, api_key: int) -> int:
    """Return the highest version of the API that the broker offers, -1 if it offers none.

    Raises LinkError and CorruptData.
    """
    answer = await link.request(API_VERSIONS, 0, {})
    if answer.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        raise LinkError(f"{link.host}:{link.port} does not answer ApiVersions: {ErrorCode(answer.error_code).name}")
    return next((api.max_version for api in answer.api_keys if api.api_key == api_key), -1)
