"""Files and directories of the disk in memory: current content, durable content, and the effect of a power loss."""

from collections.abc import Callable
from dataclasses import dataclass, field

from logyard.broker.log.disk.port import Buffer

PAGE = 4096

Choose = Callable[[int], int]
"""Given n, returns a number from 0 to n - 1. The test's random source stands behind it."""


@dataclass(eq=False)
class Inode:
    """A file: its content now, its durable content, and the byte ranges in which they differ.

    `rewrites` counts the changes to existing bytes: while it stays the same, bytes that were read before are still
    valid.
    """

    number: int
    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    durable: bytearray = field(default_factory=bytearray)
    durable_size: int = 0
    dirty: list[tuple[int, int]] = field(default_factory=list)
    mtime_ms: int = 0
    rewrites: int = 0
    attributes: dict[str, bytes] = field(default_factory=dict)
    durable_attributes: dict[str, bytes] = field(default_factory=dict)

    def write(self, data: Buffer, position: int) -> None:
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        elif position < len(self.data):
            self.rewrites += 1
        self.data[position : position + len(data)] = data
        self.size = max(self.size, position + len(data))
        self.dirty.append((position, len(data)))

    def truncate(self, size: int) -> None:
        if size < len(self.data):
            self.dirty.append((size, len(self.data) - size))
            self.rewrites += 1
            del self.data[size:]
        self.size = size

    def read(self, size: int, position: int) -> bytes:
        end = min(position + size, self.size)
        stored = bytes(self.data[position:end])
        return stored + bytes(max(0, end - position) - len(stored))

    def sync(self) -> None:
        for position, length in self.dirty:
            _copy(self.data, self.durable, position, length)
        del self.durable[self.size :]
        self.durable_size = self.size
        self.dirty.clear()
        self.durable_attributes = dict(self.attributes)

    def lose_power(self, choose: Choose) -> None:
        """Let every unsynced page, and the size, end up old or new; the size only old, if an attribute was lost."""
        pages = {
            page for start, length in self.dirty for page in range(start // PAGE, (start + length - 1) // PAGE + 1)
        }
        for page in sorted(pages):
            if choose(2):
                _copy(self.data, self.durable, page * PAGE, PAGE)
        sizes = (self.durable_size, self.size, (self.durable_size + self.size) // 2)
        size = sizes[choose(3)]
        self.size = self.durable_size = size if self.attributes == self.durable_attributes else self.durable_size
        self.attributes = dict(self.durable_attributes)
        del self.durable[self.size :]
        self.data = bytearray(self.durable)
        self.rewrites += 1
        self.dirty.clear()


def _copy(source: bytearray, target: bytearray, position: int, length: int) -> None:
    piece = source[position : position + length].ljust(length, b"\0")
    if len(target) < position:
        target.extend(bytes(position - len(target)))
    target[position : position + length] = piece


@dataclass(eq=False)
class Change:
    """One change of a directory: a name set to a node, or removed (None); it is kept only if `needs` is kept.

    With an `attribute` the names stay: the node has it from then on.
    """

    name: str
    node: "Inode | Directory | None"
    needs: "Change | None" = None
    attribute: tuple[str, bytes] | None = None


@dataclass(eq=False)
class Directory:
    entries: dict[str, "Inode | Directory"] = field(default_factory=dict)
    durable: dict[str, "Inode | Directory"] = field(default_factory=dict)
    journal: list[tuple[Change, ...]] = field(default_factory=list)

    def change(self, *changes: Change) -> None:
        for change in changes:
            apply(self.entries, change)
        self.journal.append(changes)

    def sync(self) -> None:
        for changes in self.journal:
            for change in changes:
                keep_attribute(change)
        self.durable = dict(self.entries)
        self.journal.clear()


def keep_attribute(change: Change) -> None:
    """Make the attribute of a change durable, if it has one."""
    if change.attribute is not None and isinstance(change.node, Inode):
        change.node.durable_attributes.update([change.attribute])


def apply(entries: dict[str, "Inode | Directory"], change: Change) -> None:
    if change.attribute is not None:
        return
    if change.node is None:
        entries.pop(change.name, None)
    else:
        entries[change.name] = change.node


def collect(directory: Directory, directories: list[Directory], inodes: dict[int, Inode], seen: set[int]) -> None:
    """Gather everything reachable now or after a power loss."""
    directories.append(directory)
    seen.add(id(directory))
    nodes = [*directory.entries.values(), *directory.durable.values()]
    nodes += [change.node for changes in directory.journal for change in changes if change.node is not None]
    for node in nodes:
        if isinstance(node, Inode):
            inodes[node.number] = node
        elif id(node) not in seen:
            collect(node, directories, inodes, seen)
