"""Overrides as ZooKeeper keeps them: written by any kind of broker, or by hand."""

from collections.abc import Callable, Mapping

from logyard.broker.config.listener_keys import key_of


def readable(overrides: Mapping[str, str], note: Callable[[str], None]) -> dict[str, str]:
    """The stored overrides that can be read; the others, which some other kind of broker let pass, are noted."""
    found = {}
    for name, text in overrides.items():
        key = key_of(name)
        try:
            if key is not None:
                key.parse(text)
        except ValueError as problem:
            note(f"{problem}: the override is left out")
        else:
            found[name] = text
    return found
