"""Handshakes, half-open connections and data over TLS on one listener: `python -m tests.benchmarks.bench_tls`.

--rate N handshakes arrive a second for --seconds, from other processes, while an open connection asks every
millisecond. --half-open N connections begin a handshake and never go on. --soak N does N handshakes in all. --uvloop
serves with uvloop's own TLS instead, to compare.
"""

import argparse
import asyncio
import gc
import multiprocessing
import os
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import uvloop

from logyard.broker.server.connection import Connection
from logyard.broker.tls.handshakes import Handshakes
from tests.support.certificates import Issued
from tests.support.tls_listener import AUTHORITY, SERVER, Echo, client_context, framed, listening, settings

CLIENTS = 8
PARTS = 10  # how often the memory is looked at
TICK_S = 0.001


def shaking(port: int, authority: str, rate: float, count: int, done: Any) -> None:
    """Make so many handshakes at a rate; resumption is off, each is a whole one."""
    next_s = time.monotonic()
    for _ in range(count):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=authority)
        next_s += 1 / rate
        time.sleep(max(0.0, next_s - time.monotonic()))
        sock = socket.create_connection(("127.0.0.1", port))
        with context.wrap_socket(sock, server_hostname="127.0.0.1") as secured:
            secured.sendall(framed(b"ab"))
            secured.recv(6)
    done.put(count)


async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> float:
    before = time.monotonic()
    writer.write(framed(body))
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    await reader.readexactly(size)
    return time.monotonic() - before


class Pauses:
    """How late the loop's timers are, and how much CPU its thread has used between two of them.

    The latter says what the loop's own work was on a machine that is busy with something else.
    """

    def __init__(self) -> None:
        self.found: list[float] = []
        self.cpu: list[float] = []
        self._cpu_s = time.thread_time()
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        if self._due:
            self.found.append(now - self._due)
            self.cpu.append(time.thread_time() - self._cpu_s)
        self._cpu_s = time.thread_time()
        self._due = now + TICK_S
        self._timer = self._loop.call_at(self._due, self._tick)

    def stop(self) -> None:
        self._timer.cancel()


def shown(name: str, found: list[float]) -> str:
    ordered = sorted(found)
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1000 for part in (0.5, 0.99, 1.0)]
    return f"{name}: p50 {at[0]:.2f} ms, p99 {at[1]:.2f} ms, most {at[2]:.2f} ms ({len(found)})"


def server(pipe: Any, of_uvloop: bool) -> None:
    """A process with the listener; it tells its port and, on each message, its pauses and memory."""

    async def main() -> None:
        echo = Echo()
        if of_uvloop:
            await _uvloops(echo, lambda port: serve(pipe, port, None))
            return
        shakes = Handshakes()
        async with listening(echo, settings(), shakes) as listener:
            await serve(pipe, listener.port, shakes)

    uvloop.run(main())


async def serve(pipe: Any, port: int, shakes: Handshakes | None) -> None:
    gc.collect()
    gc.freeze()  # as the broker's process does before it serves
    loop = asyncio.get_running_loop()
    pipe.send(port)
    while True:
        pauses = Pauses()
        began = time.process_time()
        asked_for = await loop.run_in_executor(None, pipe.recv)
        pauses.stop()
        memory = psutil.Process().memory_info().rss / 1e6
        pipe.send(
            (pauses.found, pauses.cpu, memory, time.process_time() - began, shakes.waiting_count if shakes else -1)
        )
        if asked_for == "end":
            return


async def _uvloops(echo: Echo, serve_on: Callable[[int], Any]) -> None:
    """The same connections with the loop's own TLS."""
    loop = asyncio.get_running_loop()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        own: Issued = SERVER
        context.load_cert_chain(own.write_pem(Path(directory) / "own.pem"))

    def connection() -> Connection:
        return Connection(echo, "SSL", 1, 100 << 20, lambda _: True, lambda _: None)

    made = await loop.create_server(connection, "127.0.0.1", 0, ssl=context)
    await serve_on(made.sockets[0].getsockname()[1])
    made.close()


async def measure(options: argparse.Namespace) -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=server, args=(theirs, options.uvloop))
    process.start()
    loop = asyncio.get_running_loop()
    port = ours.recv()

    def told(word: str) -> Any:
        ours.send(word)
        return ours.recv()

    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context())
    for _ in range(100):
        await asked(reader, writer, b"ab")
    _, _, before_mb, _, _ = told("now")
    held = []
    if options.half_open:
        hello = _hello()
        for _ in range(options.half_open):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.sendall(hello)
            held.append(sock)
        await asyncio.sleep(3)
        pauses, turns, memory, _, waiting = await loop.run_in_executor(None, told, "now")
        print(f"{options.half_open} half-open: {waiting} wait, {memory - before_mb:.0f} MB more")
        print(shown("the loop's pauses meanwhile", pauses))
        print(shown("CPU of its turns", turns))
    processes: list[multiprocessing.Process] = []
    counts: multiprocessing.Queue[int] = multiprocessing.Queue()
    seconds = options.soak / options.rate if options.soak else options.seconds
    for _ in range(CLIENTS):
        arguments = (port, AUTHORITY.pem, options.rate / CLIENTS, round(options.rate * seconds / CLIENTS), counts)
        processes.append(multiprocessing.Process(target=shaking, args=arguments))
    for each in processes:
        each.start()
    told("now")
    memories: list[float] = []
    times, pauses, turns, cpu_s = [], [], [], 0.0
    for _ in range(PARTS):
        until = time.monotonic() + seconds / PARTS
        while time.monotonic() < until:
            times.append(await asked(reader, writer, b"ab"))
            await asyncio.sleep(TICK_S)
        found, cpu, memory, spent_s, _ = await loop.run_in_executor(None, told, "now")
        pauses, turns, cpu_s, memories = [*pauses, *found], [*turns, *cpu], cpu_s + spent_s, [*memories, memory]
    done = sum(counts.get() for _ in processes)
    print(f"{done} handshakes in {seconds:.0f} s, {cpu_s / max(1, done) * 1000:.2f} ms of CPU each (all threads)")
    print(shown("the loop's pauses", pauses))
    print(shown("CPU of its turns", turns))
    print(shown("requests of another connection", times))
    meanwhile = " ".join(f"{each:.0f}" for each in memories)
    print(f"memory {before_mb:.0f} MB before, then {meanwhile} MB; load {os.getloadavg()[0]:.1f}")
    for each in processes:
        each.join()
    for sock in held:
        sock.close()
    writer.close()
    told("end")
    process.join()


def _hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    state = client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    try:
        state.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a peer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--half-open", type=int, default=0)
    parser.add_argument("--soak", type=int, default=0)
    parser.add_argument("--uvloop", action="store_true")
    uvloop.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
