"""What Python's garbage collector looks at while tests run."""

import gc


def leave_out() -> None:
    """Never search again what is there now: modules, tests and parameters, some million objects.

    The second round begins the collector's count anew. Without it full rounds would wait until a quarter of what was
    left out is new, and garbage with sockets would stay so long that descriptors pass 1,024, which select() refuses.
    """
    gc.collect()
    gc.freeze()
    gc.collect()
