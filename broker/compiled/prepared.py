"""`python -m logyard.broker.compiled.prepared`: compiles the loops that a broker loads, and keeps them where it looks.

Compiling takes seconds in which a process can do little else.
"""

import os

from logyard.broker.compiled import old_conversion, record_look

NICENESS = 10


def compile_and_keep() -> None:
    """Compile all that a broker loads, unless it is kept."""
    record_look.compile_and_keep()
    old_conversion.compile_and_keep()


def main() -> None:
    os.nice(NICENESS)
    compile_and_keep()


if __name__ == "__main__":
    main()
