"""Fuzzes one target with atheris until it finds something or is told to end: `python -m tests.fuzz.one TARGET OPTION…`.

The options are libFuzzer's. What is imported here is instrumented, so that inputs that reach new lines are kept.
"""

import sys

import atheris

with atheris.instrument_imports(include=["logyard.broker"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
