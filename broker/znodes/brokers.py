"""/brokers/ids/N: a broker's registration. Reads versions 1 to 5, writes 2, 4 and 5 (facts §1, §22).

The broker's epoch is the znode's czxid. `logyard_http` is our own top-level key, the broker's HTTP address. It is not
among the `endpoints`, because Kafka's brokers parse those.
"""

import re
from collections.abc import Mapping
from typing import Any

from logyard.broker.config.inter_broker_protocol import InterBrokerProtocol
from logyard.broker.errors import CorruptData
from logyard.broker.model import BrokerInfo, Endpoint, LevelRange
from logyard.broker.znodes import fields
from logyard.broker.znodes.ops import Znode
from logyard.broker.znodes.paths import BROKER_IDS, BROKER_SEQUENCE_IDS

IDS_PATH = BROKER_IDS
SEQUENCE_PATH = BROKER_SEQUENCE_IDS

VERSION_WITHOUT_NAMES = 2  # inter.broker.protocol.version below 0.10.0-IV1, whose brokers fail on later versions
VERSION_WITHOUT_FEATURES = 4  # inter.broker.protocol.version below 2.7-IV0
VERSION_WITH_FEATURES = 5

_ENDPOINT = re.compile(r"(.+)://(?:\[([0-9a-zA-Z\-%._:]*)\]|([0-9a-zA-Z\-%._]*)):(-?[0-9]{1,10})")


def version_for(ibp: InterBrokerProtocol) -> int:
    """Return the version of a broker's registration at this inter.broker.protocol.version, as in Kafka."""
    if ibp >= InterBrokerProtocol.IBP_2_7_IV0:
        return VERSION_WITH_FEATURES
    return VERSION_WITHOUT_FEATURES if ibp >= InterBrokerProtocol.IBP_0_10_0_IV1 else VERSION_WITHOUT_NAMES


def path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def generated_id(seqid_version: int, reserved_broker_max_id: int) -> int:
    """Return the broker id after a set of /brokers/seqid: reserved.broker.max.id plus its version (first: 1001)."""
    return seqid_version + reserved_broker_max_id


def encode(info: BrokerInfo, timestamp_ms: int, *, jmx_port: int = -1, version: int = VERSION_WITH_FEATURES) -> bytes:
    """Write a registration; host and port are those of the first PLAINTEXT endpoint, null and -1 if there is none."""
    plain = next((e for e in info.endpoints if e.protocol == "PLAINTEXT"), None)
    content: dict[str, Any] = {
        "version": version,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "endpoints": [endpoint_text(e) for e in info.endpoints],
        "jmx_port": jmx_port,
        "timestamp": str(timestamp_ms),
    }
    if version >= VERSION_WITHOUT_FEATURES:
        content["listener_security_protocol_map"] = {e.listener: e.protocol for e in info.endpoints}
        if info.rack is not None:
            content["rack"] = info.rack
    if version >= VERSION_WITH_FEATURES:
        content["features"] = {
            name: {"min_version": levels.lowest, "max_version": levels.highest} for name, levels in info.features
        }
    if info.http is not None:
        content["logyard_http"] = info.http
    return fields.dump(content)


def decode(broker_id: int, znode: Znode) -> BrokerInfo:
    """Read versions 1 to 5; the epoch comes from the znode's czxid. Raises CorruptData."""
    content = fields.Fields.parse(path(broker_id), znode.data)
    if content.version() == 1:
        host, port = content.text("host"), content.integer("port")
        endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", "PLAINTEXT", host, port),)
    else:
        protocols = content.optional_object("listener_security_protocol_map")
        mapping = {listener.upper(): protocols.text(listener) for listener in protocols.names()}
        endpoints = tuple(_endpoint(broker_id, text, mapping) for text in content.texts("endpoints"))
    return BrokerInfo(
        id=broker_id,
        endpoints=endpoints,
        rack=content.optional_text("rack"),
        epoch=znode.czxid,
        http=content.optional_text("logyard_http"),
        features=_features(content),
    )


def endpoint_text(endpoint: Endpoint) -> str:
    """Return `NAME://host:port`, with an IPv6 address in brackets."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def _features(content: fields.Fields) -> tuple[tuple[str, LevelRange], ...]:
    """The supported features; none where they cannot be read: a broker without features is a broker all the same."""
    try:
        found = content.optional_object("features")
        levels = [(name, found.object(name)) for name in found.names()]
        return tuple((name, LevelRange(f.integer("min_version"), f.integer("max_version"))) for name, f in levels)
    except CorruptData:
        return ()


def _endpoint(broker_id: int, text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise CorruptData(f"znode {path(broker_id)}: LISTENER://host:port is expected in endpoints, found {text!r}")
    listener = match[1].upper()
    # Versions 2 and 3 have no map: the listener's name is the protocol.
    return Endpoint(listener, protocols.get(listener, listener), match[2] or match[3] or "", int(match[4]))
