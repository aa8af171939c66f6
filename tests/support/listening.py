"""A server on a socket of this machine, whose manners a test chooses."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Serve = Callable[[socket.socket], None]


@contextmanager
def listening(serve: Serve) -> Iterator[str]:
    """Serves each connection in a thread, and then closes it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        over, threads = threading.Event(), []

        def alone(link: socket.socket) -> None:
            with link, suppress(OSError):
                link.settimeout(10)
                serve(link)

        def accept() -> None:
            while not over.is_set():
                with suppress(TimeoutError):
                    threads.append(threading.Thread(target=alone, args=(server.accept()[0],)))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            for thread in (accepting, *threads):
                thread.join()
