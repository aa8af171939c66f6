"""What Python's garbage collector looks at while tests run."""

import gc

MANY = 30_000


def leave_out() -> None:
    """Never search again what is there now: modules, tests and parameters, some million objects.

    The second round begins the collector's count anew. Without it full rounds would wait until a quarter of what was
    left out is new, and garbage with sockets would stay so long that descriptors pass 1,024, which select() refuses.
    """
    gc.collect()
    gc.freeze()
    gc.collect()


def leave_out_many() -> None:
    """The same, if much has come since: what tests import, and caches. Between two files of tests, when their brokers
    are gone; each that goes has the collector search all (`inside_broker.py`)."""
    if len(gc.get_objects(2)) > MANY:
        leave_out()
