"""Overrides that are stored in ZooKeeper, by any kind of broker or by hand."""

from collections.abc import Callable, Mapping

from logyard.broker.config.listener_keys import key_of


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
