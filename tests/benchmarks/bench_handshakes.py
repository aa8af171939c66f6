"""The ceiling of TLS handshakes in this Python: OpenSSL alone, both sides in memory, the server's CPU on one core.

    python -m tests.benchmarks.bench_handshakes

Rows: keys of RSA 2048 and of P-256, TLS 1.2 and 1.3, whole and resumed (as Java's clients do; librdkafka's do not), and
with a client certificate. bench_tls.py has what our transport makes of it.
"""

import argparse
import datetime
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
KEYS: Mapping[str, Callable[[], Key]] = {
    "RSA 2048": lambda: rsa.generate_private_key(65537, 2048),
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
}
VERSIONS = {"TLS 1.2": ssl.TLSVersion.TLSv1_2, "TLS 1.3": ssl.TLSVersion.TLSv1_3}


def certificate(key: Key, path: Path) -> Path:
    """Write a key and its own certificate."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(
        now + datetime.timedelta(days=9)
    )
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    made = builder.sign(key, hashes.SHA256())
    form = serialization.PrivateFormat.PKCS8
    text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    path.write_bytes(text + made.public_bytes(serialization.Encoding.PEM))
    return path


def contexts(pem: Path, version: ssl.TLSVersion, *, mutual: bool) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's context and the client's."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(pem)
    client.load_verify_locations(pem)
    if mutual:
        server.verify_mode = ssl.CERT_REQUIRED
        server.load_verify_locations(pem)
        client.load_cert_chain(pem)
    client.maximum_version = client.minimum_version = version
    return server, client


def shake(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[float, ssl.SSLObject]:
    """One handshake; return the CPU seconds of the server's side, and the client's."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    mine = client.wrap_bio(to_client, to_server, server_hostname="localhost", session=session)
    began = time.thread_time()
    own = server.wrap_bio(to_server, to_client, server_side=True)
    spent = time.thread_time() - began
    is_done = False
    while not is_done:
        is_done, _ = stepped(mine)
        own_is_done, more_s = stepped(own)
        is_done, spent = is_done and own_is_done, spent + more_s
    own.write(b"ticket")
    mine.read(6)
    return spent, mine


def stepped(side: ssl.SSLObject) -> tuple[bool, float]:
    """Let a side go on; return whether its handshake is done, and the CPU seconds."""
    began = time.thread_time()
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False, time.thread_time() - began
    return True, time.thread_time() - began


def row(pem: Path, version: ssl.TLSVersion, count: int, *, mutual: bool, resumed: bool) -> float:
    """The server's CPU seconds of one handshake of that kind."""
    server, client = contexts(pem, version, mutual=mutual)
    _, last = shake(server, client, None)
    spent = 0.0
    for _ in range(count):
        cpu_s, last = shake(server, client, last.session if resumed else None)
        assert last.session_reused is resumed
        spent += cpu_s
    return spent / count


def measure(count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        pems = {kind: certificate(new_key(), Path(directory) / f"{kind}.pem") for kind, new_key in KEYS.items()}
        kinds = ((False, False, ""), (False, True, ", resumed"), (True, False, ", client certificate"))
        for (kind, pem), (name, version), (mutual, resumed, how) in product(pems.items(), VERSIONS.items(), kinds):
            cpu_s = row(pem, version, count, mutual=mutual, resumed=resumed)
            print(f"{kind + ', ' + name + how:44}{cpu_s * 1000:8.3f} ms{1 / cpu_s:10.0f} a second", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400, help="handshakes a row")
    measure(parser.parse_args().count)


if __name__ == "__main__":
    main()
