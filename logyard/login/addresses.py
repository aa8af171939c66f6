"""Log-ins that stand in addresses, where they do not belong: they come into logs and onto command lines. Pure."""

import re

# A user with a password, which may hold '/': nearly half of Amazon's secret keys do.
_LOGIN = re.compile(r"(?<=://)[^/@]*:[^@]*@")


def has_login(address: str) -> bool:
    """Whether an address, which may be no URL, has a user with a password in it."""
    return _LOGIN.search(address) is not None


def without_login(address: str) -> str:
    """The address without them."""
    return _LOGIN.sub("", address)
