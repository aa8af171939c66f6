"""The files of new partitions made by nothing but system calls: what the file system itself takes for them.

A directory, five files and two renames a partition, as a broker makes them (`strace -c`); nothing is synced, since a
broker syncs the data directory once for all of them. They stay where they are: files that are deleted make the next
ones dearer on ext4 for some minutes.
"""

import os
import time
from pathlib import Path

SPARSE = {
    "00000000000000000000.log": 0,
    "00000000000000000000.index": 10_485_760,
    "00000000000000000000.timeindex": 10_485_756,
}
REPLACED = {
    "leader-epoch-checkpoint": b"0\n1\n0 0\n",
    "partition.metadata": b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
}


def make(directory: Path, count: int) -> float:
    """Make the files of so many partitions; returns the seconds."""
    root = f"{directory}/bare-{time.monotonic_ns()}"
    begun = time.perf_counter()
    os.mkdir(root)
    for number in range(count):
        partition = f"{root}/bare-{number}"
        os.mkdir(partition)
        for name, size in SPARSE.items():
            file = os.open(f"{partition}/{name}", os.O_CREAT | os.O_RDWR, 0o644)
            if size:
                os.ftruncate(file, size)
            os.close(file)
        for name, content in REPLACED.items():
            file = os.open(f"{partition}/{name}.tmp", os.O_CREAT | os.O_WRONLY, 0o644)
            os.write(file, content)
            os.close(file)
            os.rename(f"{partition}/{name}.tmp", f"{partition}/{name}")
    return time.perf_counter() - begun
