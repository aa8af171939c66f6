"""Sizes for which this machine allows a process too few files: a part is measured in a Linux of its own.

That is User-mode Linux, a kernel that runs as a process (Debian's package user-mode-linux). It has one core, it sees
this machine's files without writing them, and what is written goes to a disk image. Memory is what it is elsewhere. A
system call takes some ten times as long, and CPU is counted in ticks of 10 ms: compare within a table.
"""

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.curves import points
from tests.benchmarks.curves.points import Curve

KERNEL = "linux.uml"
ROOT = Path(__file__).resolve().parents[3]
FILES, MEMORY, DISK_BYTES, INODES = 400_000, "12G", 60 << 30, 6_000_000
# The kernel of the guest maps its processes' pages one by one.
MAPS, MAPS_MIN = Path("/proc/sys/vm/max_map_count"), 2_000_000
LONGEST_S = 4 * 3600

# /mnt has the disk, and in it the directory of the machine that gets what was measured.
INIT = """#!/bin/bash
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/mnt TMPDIR=/mnt PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /dev/shm || {{ mkdir /dev/shm && mount -t tmpfs tmpfs /dev/shm; }}
mount -t ext4 /dev/ubda /mnt
mkdir /mnt/out
mount -t hostfs none /mnt/out -o {out}
ip link set lo up
echo 2000000 > /proc/sys/fs/nr_open
echo 2000000 > /proc/sys/vm/max_map_count
echo 65535 > /proc/sys/net/core/somaxconn
echo 65535 > /proc/sys/net/ipv4/tcp_max_syn_backlog
echo 1024 65000 > /proc/sys/net/ipv4/ip_local_port_range
ulimit -Hn {files} && ulimit -Sn {files}
cd {root}
{command} > /mnt/out/log 2>&1
sync
halt -f || echo o > /proc/sysrq-trigger
sleep 60
"""


def measure(part: str, sizes: Sequence[int]) -> Curve:
    """Measure a part of `python -m tests.benchmarks.curves` there; the curve is named after it.

    Raises RuntimeError if nothing was measured: with the end of what the part and the kernel have said.
    """
    if int(MAPS.read_text()) < MAPS_MIN:
        raise RuntimeError(f"processes of a guest run out of memory: sysctl -w vm.max_map_count={MAPS_MIN} first")
    with tempfile.TemporaryDirectory(prefix="guest-") as place:
        directory = Path(place)
        disk, init, out = directory / "disk", directory / "init", directory / "out"
        out.mkdir()
        with disk.open("wb") as file:
            file.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-N", str(INODES), str(disk)], check=True)
        own = [sys.executable, "-m", "tests.benchmarks.curves", part, "--into", "/mnt/out/curves.json", "--sizes"]
        command = shlex.join([*own, *map(str, sizes)])
        init.write_text(INIT.format(out=out, root=shlex.quote(str(ROOT)), files=FILES, command=command))
        init.chmod(0o755)
        console = _boot(directory, init, disk)
        curve = points.load(out / "curves.json").get(part)
        if curve is None:
            log = out / "log"
            said = f"{log.read_text()[-2000:] if log.exists() else ''}\n{console[-1000:]}"
            raise RuntimeError(f"{part} was not measured in the guest: {said}")
    return replace(curve, name=f"{part}-in-a-guest")


def _boot(directory: Path, init: Path, disk: Path) -> str:
    """Run the kernel until it halts; returns what it said."""
    command = [KERNEL, f"mem={MEMORY}", "rootfstype=hostfs", "rootflags=/", "ro", f"init={init}", f"ubda={disk}"]
    command += ["con=null", "con0=null,fd:2", "con1=fd:0,fd:1", "ssl=null"]
    with (directory / "console").open("w+", errors="replace") as console:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            env={"TMPDIR": str(directory), "PATH": "/usr/bin:/bin", "HOME": str(directory)},
            timeout=LONGEST_S,
        )
        console.seek(0)
        return console.read()
