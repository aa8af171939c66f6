"""The parts of uvicorn that a broker uses. Its `__init__` also imports a command line and what restarts a server when
files change: 4 MB and 60 ms.
"""

from logyard.broker.late_import import as_if_missing
from logyard.broker.submodule_import import without_package_init

with without_package_init("uvicorn"), as_if_missing("a2wsgi"):
    import uvicorn
    from uvicorn.config import Config

    # `Config` imports the class of `lifespan="off"` by its name, and that class imports `Config` from the package.
    uvicorn.Config = Config  # type: ignore[misc]
    import uvicorn.lifespan.off
    from uvicorn.protocols.http.h11_impl import H11Protocol
    from uvicorn.server import Server

__all__ = ["Config", "H11Protocol", "Server"]
