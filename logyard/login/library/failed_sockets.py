"""Has kafka-python 3.0.12 close the sockets of connections that it could not make.

It drops them, and keeps the error, whose traceback holds the socket: a descriptor is taken until the garbage collector
comes, and one that was still connecting when its time was over goes on connecting.
"""

from functools import cache
from typing import Any

_SCHEME = "logyard-direct"


def direct() -> str:
    """Return the `proxy_url` of kafka-python by which it connects without a proxy, and closes what did not connect."""
    _registered()
    return f"{_SCHEME}:"


@cache
def _registered() -> type:
    """The class that kafka-python finds by the scheme; it is kept here, as some versions refer to it weakly."""
    from kafka.net.inet import KafkaNetSocket

    class Direct(KafkaNetSocket):  # type: ignore[misc]  # kafka-python has no types
        SCHEMES = (_SCHEME,)  # by which kafka-python finds it
        made: Any = None

        def socket(self, *kind: Any) -> Any:
            self.made = super().socket(*kind)
            return self.made

        async def connect(self, *arguments: Any, **options: Any) -> Any:
            try:
                return await super().connect(*arguments, **options)
            except BaseException:
                if self.made is not None:
                    self.made.close()
                raise

    return Direct
