"""librdkafka's own test-suite with TLS, log-ins and ACLs switched on, against three of our brokers.

    python -P tests/librdkafka/secured.py                # everything in allowed-secured.txt
    python -P tests/librdkafka/secured.py 0126 0135      # only the tests whose names contain one of these

allowed-secured.txt names each test with the set-ups in which it has to pass: SSL; PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
and OAUTHBEARER over SASL_SSL; ACLS in plain text, where all may do what no ACL forbids. run.py has the rest:
the source (with libssl-dev and libcurl4-openssl-dev when it is built), and the tests without security.
"""

import argparse
import secrets
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from cryptography import x509  # noqa: E402
from cryptography.hazmat.primitives.serialization import (  # noqa: E402
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from tests.librdkafka import run as suite  # noqa: E402
from tests.support import secured  # noqa: E402
from tests.support.secured import Secured  # noqa: E402
from tests.support.token_endpoint import TokenEndpoint  # noqa: E402

ACLS = "ACLS"
# PLAINTEXT is for ACLS: its clients are nobody in particular, and may do what no ACL forbids.
KEYS = {
    **suite.BROKERS,
    **suite.SCENARIOS["default"],
    "super.users": "User:broker;User:admin;User:CN=admin",
    "allow.everyone.if.no.acl.found": "true",
}


@contextmanager
def setups(world: Secured, directory: Path) -> Iterator[dict[str, suite.Setup]]:
    """Every set-up by its name."""
    made = {ACLS: suite.Setup(ACLS)}
    for mechanism in secured.MECHANISMS:
        options = {**world.librdkafka("admin", mechanism), "bootstrap.servers": world.bootstrap()}
        made[mechanism] = suite.Setup(mechanism, options)
    forms = certificates(world, directory)
    options = {**world.librdkafka("admin", protocol="SSL"), "ssl.key.password": forms["SSL_password"]}
    made["SSL"] = suite.Setup("SSL", options, forms)
    with ExitStack() as stack:
        clients = {"admin": world.users["admin"].oauth}
        # Tokens by another key, and tokens that have ended: 0126 expects a refusal of each.
        other = stack.enter_context(TokenEndpoint(directory / "other", clients))
        ended = stack.enter_context(TokenEndpoint(directory / "ended", clients, life_s=-60))
        urls = {
            "VALID_OIDC_URL": world.endpoint.url,
            "INVALID_OIDC_URL": other.url,
            "EXPIRED_TOKEN_OIDC_URL": ended.url,
        }
        made["OAUTHBEARER"] = suite.Setup("OAUTHBEARER", made["OAUTHBEARER"].options, urls)
        yield made


def certificates(world: Secured, directory: Path) -> dict[str, str]:
    """The super user's key and certificate in every form that 0097 loads, by the names of its variables."""
    password = secrets.token_urlsafe(9)
    issued, authority = (
        world.certificates["admin"],
        x509.load_pem_x509_certificate(world.authority.certificate.read_bytes()),
    )
    key = load_pem_private_key(issued.key.read_bytes(), None)
    certificate = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    locked = BestAvailableEncryption(password.encode())
    forms = {
        "SSL_pkcs": pkcs12.serialize_key_and_certificates(b"admin", key, certificate, [authority], locked),  # type: ignore[arg-type]
        "SSL_pub_der": certificate.public_bytes(Encoding.DER),
        "SSL_pub_pem": certificate.public_bytes(Encoding.PEM),
        "SSL_priv_der": key.private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
        "SSL_priv_pem": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked),
        "SSL_ca_der": authority.public_bytes(Encoding.DER),
        "SSL_ca_pem": authority.public_bytes(Encoding.PEM),
        "SSL_all_cas_pem": authority.public_bytes(Encoding.PEM),
    }
    folder = directory / "forms"
    folder.mkdir()
    for name, content in forms.items():
        (folder / name).write_bytes(content)
    return {**{name: str(folder / name) for name in forms}, "SSL_password": password}


def run(tests: Path, name: str, setup: suite.Setup, world: Secured, output: Path) -> list[suite.Ended]:
    """Run one test in one set-up, or those of its subtests that pass without security, and say how it ended."""
    bootstrap = setup.options.get("bootstrap.servers", world.bootstrap("PLAINTEXT"))
    (output / f"{name.partition('_')[0]}-{setup.name}.log").unlink(missing_ok=True)
    parts = suite.names_in(HERE / "allowed.txt").get(name, "").split() or [""]
    ended = [each for part in parts for each in suite.run(tests, [name], part, "default", bootstrap, output, setup)]
    for each in ended:
        print(f"{each.name:36}{setup.name:16}{each.state:12}{each.seconds:8.1f} s", flush=True)
    return ended


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", help="parts of the names of the tests to run; none: all of the list")
    parser.add_argument("--source", type=Path, help="an unpacked (and maybe built) source instead of Debian's")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the brokers end with us
    output = suite.BUILD / "output"
    output.mkdir(parents=True, exist_ok=True)
    tests = suite.build(options.source or suite.fetch(suite.BUILD))
    allowed = suite.names_in(HERE / "allowed-secured.txt")
    wanted = [name for name in allowed if not options.tests or any(part in name for part in options.tests)]
    with TemporaryDirectory(prefix="librdkafka-") as temporary:
        directory = Path(temporary)
        with secured.running(directory / "cluster", "OOO", KEYS) as world, setups(world, directory) as known:
            pairs = [(name, known[setup]) for name in wanted for setup in allowed[name].split()]
            try:
                ended = [each for name, setup in pairs for each in run(tests, name, setup, world, output)]
            finally:
                for log in (directory / "cluster").rglob("broker-*.log"):
                    shutil.copy(log, output / f"secured-{log.name}")
    failed = [each for each in ended if each.state != "PASSED"]
    print(f"librdkafka secured: {len(ended) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed or not ended else 0


if __name__ == "__main__":
    sys.exit(main())
