"""A second listener with TLS for both clusters, beside the plain one: for rows that compare TLS with TLS."""

import json
from pathlib import Path

from logyard.local.ports import HOST, Ports
from tests.support.authority import Authority
from tests.support.real_cluster import RealCluster
from tests.support.secured import listeners_file

CA = "tls/ca.pem"


def prepare(directory: Path, brokers: int) -> dict[str, str]:
    """Choose the ports, write the stores; return the brokers' settings, for either kind."""
    directory.mkdir(parents=True, exist_ok=True)
    chosen = Ports(directory)
    listeners = {broker: {"SSL": chosen.choose(f"broker-{broker}-ssl")} for broker in range(brokers)}
    listeners_file(directory).write_text(json.dumps(listeners))
    authority = Authority((directory / CA).parent)
    own = authority.issue("broker", ("localhost", HOST))
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own.pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
    }


def ports(directory: Path) -> dict[str, int]:
    """Return the listeners' ports by the number of the broker."""
    return {broker: of["SSL"] for broker, of in json.loads(listeners_file(directory).read_text()).items()}


def client(cluster: RealCluster, *, tls: bool) -> dict[str, object]:
    """Return librdkafka's settings for the plain listener or the other one."""
    if not tls:
        return {"bootstrap.servers": cluster.bootstrap}
    return {
        "bootstrap.servers": ",".join(f"{HOST}:{port}" for port in ports(cluster.directory).values()),
        "security.protocol": "SSL",
        "ssl.ca.location": str(cluster.directory / CA),
    }
