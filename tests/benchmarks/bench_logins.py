"""A flood of SCRAM log-ins at one broker: `python -m tests.benchmarks.bench_logins --rate 500 --seconds 10`.

Connections arrive from other processes, each logs in once; meanwhile a connection that is logged in asks for metadata.
Told are the broker's CPU for each log-in, how long a turn of its loop takes, and how long the other's answers take.
The clients compute PBKDF2 once, so that they keep up on a small machine.
"""

import argparse
import asyncio
import base64
import gc
import hashlib
import hmac
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from logyard.broker.security.sasl.mechanism import SCRAM_SHA_512
from logyard.broker.znodes.scram_credentials import ScramCredential
from tests.benchmarks.bench_tls import Pauses, shown
from tests.support.inside_broker import InsideBroker
from tests.support.sasl_client import SaslClient

CLIENTS = 4
TICK_S = 0.005
PASSWORD, SALT, ITERATIONS = "wonder-land", b"salt", 4096
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,IN://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": SCRAM_SHA_512,
}
SALTED = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), SALT, ITERATIONS)


class Client:
    """SCRAM by a password that is salted already."""

    is_done = False

    def __init__(self) -> None:
        self._nonce = base64.b64encode(os.urandom(12)).decode()
        self._bare = f"n=alice,r={self._nonce}"
        self._steps = 0

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def step(self, token: bytes) -> bytes | None:
        self._steps += 1
        if self._steps == 2:
            self.is_done = True
            return None
        theirs = token.decode()
        nonce = theirs.partition(",")[0].removeprefix("r=")
        unsigned = f"c=biws,r={nonce}"
        key = hmac.digest(SALTED, b"Client Key", "sha512")
        signed = hmac.digest(hashlib.sha512(key).digest(), f"{self._bare},{theirs},{unsigned}".encode(), "sha512")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signed, strict=True))).decode()
        return f"{unsigned},p={proof}".encode()


def arriving(port: int, rate: float, seconds: float, counts: Any) -> None:
    """Log in at a rate until the time is over."""

    async def one() -> bool:
        try:
            client = await SaslClient.connect(port)
            answer = await client.log_in(SCRAM_SHA_512, Client())
            await client.close()
        except (OSError, TimeoutError):
            return False
        return answer is not None and answer.error_code == 0

    async def main() -> None:
        begun, tasks = time.monotonic(), []
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
            tasks.append(asyncio.ensure_future(one()))
        counts.put(sum(await asyncio.gather(*tasks)))

    uvloop.run(main())


async def measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with InsideBroker(Path(directory), SETTINGS) as broker:
            credential = ScramCredential.of_password(SCRAM_SHA_512, PASSWORD, ITERATIONS, SALT)
            broker.components.configs.credentials.take("alice", {SCRAM_SHA_512: credential.text()})
            port = broker.port_of("IN")
            other = await SaslClient.connect(port)
            await other.log_in(SCRAM_SHA_512, Client())
            gc.collect()
            gc.freeze()  # as the broker's process does before it serves
            await flood(port, other, options.rate, options.seconds)


async def flood(port: int, other: SaslClient, rate: float, seconds: float) -> None:
    counts: multiprocessing.Queue[int] = multiprocessing.Queue()
    arguments = (port, rate / CLIENTS, seconds, counts)
    processes = [multiprocessing.Process(target=arriving, args=arguments) for _ in range(CLIENTS)]
    for each in processes:
        each.start()
    pauses, began, times = Pauses(), time.process_time(), []
    while any(each.is_alive() for each in processes):
        asked = time.monotonic()
        assert await other.is_served()
        times.append(time.monotonic() - asked)
        await asyncio.sleep(TICK_S)
        while counts.qsize() == CLIENTS and any(each.is_alive() for each in processes):
            await asyncio.sleep(TICK_S)
    pauses.stop()
    cpu_s, done = time.process_time() - began, sum(counts.get() for _ in processes)
    wanted = int(rate / CLIENTS * seconds) * CLIENTS
    print(f"{done} of {wanted} log-ins, {cpu_s / max(1, done) * 1000:.2f} ms of CPU each, with their connections")
    print(shown("the loop's pauses", pauses.found))
    print(shown("CPU of its turns", pauses.cpu))
    print(shown("requests of another connection", times))
    print(f"load {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=10)
    uvloop.run(measure(parser.parse_args()))


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
