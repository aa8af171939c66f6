"""`python -m logyard.broker.compiled.prepared`: compiles the loop that a broker loads, and keeps it where it looks.

Compiling takes seconds in which a process can do little else.
"""

import os

from logyard.broker.compiled import record_look

NICENESS = 10


def main() -> None:
    os.nice(NICENESS)
    record_look.compile_and_keep()


if __name__ == "__main__":
    main()
