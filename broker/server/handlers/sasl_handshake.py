"""SaslHandshake (17) of a connection whose log-in is over: it renews a session that has a lifetime (KIP-368).

On other connections, and on listeners without SASL, it is refused. Handshakes of a first log-in do not come here
(logins/login.py).
"""

from logyard.broker.errors import ErrorCode
from logyard.broker.protocol import codec
from logyard.broker.protocol.header import RequestHeader
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Answer, Request
from logyard.broker.server.services import Services


def handle(services: Services, request: Request) -> Answer:
    """Answer with the enabled mechanisms, or with ILLEGAL_SASL_STATE."""
    renew = request.session.renew
    if renew is not None:
        header = RequestHeader(
            request.api_key, request.api_version, request.correlation_id, request.client_id, request.body
        )
        answer = renew(header)
        if answer is not None:
            return answer
    fields = {"error_code": int(ErrorCode.ILLEGAL_SASL_STATE), "mechanisms": []}
    return codec.encode_response(request.api_key, request.api_version, request.correlation_id, fields)


HANDLER = Handler(raw=handle)
