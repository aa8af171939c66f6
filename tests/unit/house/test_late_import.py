"""A plain broker does not pay for what only TLS, OAuth, or a person at a terminal needs."""

import subprocess
import sys

UNUSED = (
    "a2wsgi",
    "airflow",
    "attr",
    "click",
    "confluent_kafka",
    "cryptography.hazmat.bindings._rust",
    "cryptography.x509",
    "greenlet",
    "importlib.metadata",
    "jwt",
    "multiprocessing",
    "numba",
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark",
    "pygments",
    "rich",
    "uvicorn.main",
    "uvicorn.supervisors",
    "watchfiles",
    "yaml",
)
SERVED = """
import asyncio, sys, urllib.request
import logyard.broker.__main__
from logyard.broker.http.server import HttpServer

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"served"})

async def serve():
    server = HttpServer("127.0.0.1", 0)
    await server.start(app)
    got = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://127.0.0.1:{server.port}/").read().decode())
    await server.close()
    return got

print(asyncio.run(serve()), *sorted(sys.modules))
"""
LATER = """
import gc, threading
import logyard.broker.__main__
from logyard.broker.security.sasl import jwks_tokens
from logyard.broker.tls import password_encoder, stores
print(gc.isenabled())
found = []
threads = [threading.Thread(target=lambda: found.append(stores.x509.Certificate)) for _ in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
import crc32c, cryptography.x509, jwt, rich, uvicorn
from logyard.broker.records import crc
print(len(found), {kind is cryptography.x509.Certificate for kind in found})
print(jwks_tokens.jwt.PyJWTError is jwt.PyJWTError, stores.pkcs12.load_pkcs12.__name__)
print(password_encoder.ciphers.Cipher.__name__, password_encoder.algorithms.AES.__name__)
print(rich.__name__, uvicorn.main.name, uvicorn.Server.__module__)
print(crc32c.crc32c(b"123456789") == crc.crc32c(b"123456789"), crc32c.CRC32CHash.__name__)
"""
MISSING = """
from logyard.broker.late_import import as_if_missing, imported_when_used
try:
    with imported_when_used("no_such_library.part"):
        pass
except ModuleNotFoundError as problem:
    print(problem.name)
with as_if_missing("decimal"):
    try:
        import decimal
    except ImportError:
        print("hidden")
import decimal
with as_if_missing("decimal"):
    import decimal as again
with imported_when_used("decimal"):
    import decimal as third
print(decimal is again is third)
"""


def run(code: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_plain_broker_imports_nothing_that_it_does_not_use() -> None:
    served, *imported = run(SERVED)[0].split()

    assert served == "served"
    assert [name for name in UNUSED if name in imported] == []
    assert len(imported) < 980


def test_what_was_left_out_is_whole_when_it_is_used() -> None:
    assert run(LATER) == [
        "True",
        "8 {True}",
        "True load_pkcs12",
        "Cipher AES",
        "rich main uvicorn.server",
        "True CRC32CHash",
    ]


def test_a_missing_library_is_told_at_once_and_one_that_is_imported_stays() -> None:
    assert run(MISSING) == ["no_such_library", "hidden", "True"]
