"""Overrides that are stored in ZooKeeper, by any kind of broker or by hand."""

from collections.abc import Callable, Mapping

from logyard.broker.config.acted_on import DYNAMIC, DYNAMIC_PER_BROKER
from logyard.broker.config.listener_keys import is_of_listener, is_security_of_listener, key_of
from logyard.broker.config.security_keys import RENEWABLE


def readable(overrides: Mapping[str, str], note: Callable[[str], None], decode: Callable[[str], str]) -> dict[str, str]:
    """Return the stored overrides that parse, with their passwords; `note` is called with a line for each other one.

    `decode` returns the password that is stored as that text, or raises ValueError.
    """
    found = {}
    for name, text in overrides.items():
        key = key_of(name)
        try:
            if key is not None and key.sensitive:
                text = decode(text)
            if key is not None:
                key.parse(text)
        except ValueError as problem:
            note(f"{problem if str(problem).startswith(name) else f'{name}: {problem}'}: the override is left out")
        else:
            found[name] = text
    return found


def with_effect(overrides: Mapping[str, str], *, cluster_wide: bool) -> dict[str, str]:
    """Return those of a broker's stored overrides, or of all brokers', that may act.

    Left out is what a broker of Kafka has stored for its plug-ins, what cannot change while a broker runs, and what
    cannot be read; of those of all brokers also what only one broker may have.
    """
    found = readable(overrides, note=lambda line: None, decode=lambda password: password)
    return {name: value for name, value in found.items() if _may_act(name, cluster_wide)}


def _may_act(name: str, cluster_wide: bool) -> bool:
    if name in RENEWABLE or not (name in DYNAMIC or is_of_listener(name)):
        return False
    return not cluster_wide or not (name in DYNAMIC_PER_BROKER or is_security_of_listener(name))
