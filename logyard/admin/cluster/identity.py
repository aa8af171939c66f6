"""Which cluster a connection leads to: it may be edited while something that was begun or planned waits."""


def led_elsewhere(known: str | None, found: str | None, since: str) -> str:
    """How to say that a connection led to cluster `known` at a time (`since`: "when …"), and leads to `found` now.

    Empty where it is the same cluster, or the id of one is not known.
    """
    if not known or not found or known == found:
        return ""
    return f"the connection led to cluster {known} {since}, and leads to {found} now"
