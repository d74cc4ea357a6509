"""Numbers that survive the process that counted them.

A worker with several processes has one ``/metrics``. Each process keeps its numbers in a ledger, a
memory-mapped file; the parent reads all ledgers and adds them up. Each count reaches the file at once, so a
process that is killed loses none, and no counter goes back when its successor starts from zero. With one process,
the same ledger is in anonymous memory.

The file: 8 bytes with the length in use, then records of key (length, text, padding to 8 bytes), value and
time stamp. Records are only ever added, and a length or value is one aligned 8-byte write, so a reader needs no lock.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import struct
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger(__name__)
Key = tuple[str, ...]
"""Name of a metric, then its label values."""

_HEADER = 8
_LENGTH = struct.Struct("=I")
_USED = struct.Struct("=Q")
_ENTRY = struct.Struct("=dd")
_VALUE_SIZE = 8
_FIRST_SIZE = 1 << 16
_SEPARATOR = "\x1f"  # ASCII's unit separator: no label value has a reason to hold it


class Reading(NamedTuple):
    """One number, and when it was put there (seconds of the machine's monotonic clock; 0 for a sum)."""

    value: float
    stamp: float


class Ledger:
    """The numbers of one process. Safe to use from any thread."""

    def __init__(self, path: Path | None = None) -> None:
        """Opens an empty ledger in the file ``path``, which must not exist; None: in memory.

        Raises:
            OSError: the file cannot be made, or its disk has no room for it.
        """
        self._path = path
        self._lock = threading.Lock()
        self._full = False
        """Whether the file could not grow when it last had to."""
        self._slots: dict[Key, int] = {}
        """Where in the memory a key's number is, counted in numbers; its stamp is the next one."""
        self._used = _HEADER
        self._file = path.open("x+b") if path else None
        self._memory = self._map(_FIRST_SIZE)
        self._numbers = memoryview(self._memory).cast("d")
        self._length = memoryview(self._memory).cast("Q")
        self._publish_length()

    def add(self, amounts: Mapping[Key, float]) -> None:
        """Adds each amount to its number, all under one lock."""
        with self._lock:
            slots = self._slots
            for key, amount in amounts.items():
                slot = slots.get(key) or self._allot(key)
                self._numbers[slot] += amount

    def put(self, values: Mapping[Key, float], *, stamp: float) -> None:
        """Replaces each number. If several processes put the same number, the latest ``stamp`` wins."""
        with self._lock:
            for key, value in values.items():
                slot = self._slots.get(key) or self._allot(key)
                self._numbers[slot], self._numbers[slot + 1] = value, stamp

    def read(self) -> dict[Key, Reading]:
        """All numbers as of now."""
        with self._lock:
            numbers = self._numbers
            return {key: Reading(numbers[slot], numbers[slot + 1]) for key, slot in self._slots.items()}

    def close(self) -> None:
        """Frees the mapping; the file stays, with all its numbers."""
        with self._lock:
            self._numbers.release()
            self._length.release()
            self._memory.close()
            if self._file:
                self._file.close()

    def _allot(self, key: Key) -> int:
        text = _SEPARATOR.join(key).encode()
        start = self._used + _LENGTH.size
        value = _aligned(start + len(text))
        end = value + _ENTRY.size
        if end > len(self._memory) - _ENTRY.size and not self._grows(end + _ENTRY.size):
            return len(self._numbers) - _ENTRY.size // _VALUE_SIZE
        _LENGTH.pack_into(self._memory, self._used, len(text))
        self._memory[start : start + len(text)] = text
        _ENTRY.pack_into(self._memory, value, 0.0, 0.0)  # keys without room may have counted here
        self._used = end
        # Last, so that a reader never sees an incomplete record.
        self._publish_length()
        slot = self._slots[key] = value // _VALUE_SIZE
        return slot

    def _grows(self, needed: int) -> bool:
        """Whether there is room now. Without it new keys share the last entry, which nobody reads, and ask again each time."""
        try:
            self._grow(needed)
        except OSError as error:
            if not self._full:
                logger.warning("metrics are incomplete: %s: %s", self._path, error.strerror)
            self._full = True
            return False
        self._full = False
        return True

    def _grow(self, needed: int) -> None:
        size = len(self._memory)
        while size < needed:
            size *= 2
        old, self._memory = self._memory, self._map(size)
        if self._file is None:
            self._memory[: self._used] = old[: self._used]
        self._numbers.release()
        self._length.release()
        self._numbers = memoryview(self._memory).cast("d")
        self._length = memoryview(self._memory).cast("Q")
        old.close()

    def _map(self, size: int) -> mmap.mmap:
        if self._file is None:
            # Private: a web server that forks after the application is loaded would have all its processes count in one memory,
            # each with an idea of its own of what is counted where.
            return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
        _reserve(self._file.fileno(), size)
        return mmap.mmap(self._file.fileno(), size)

    def _publish_length(self) -> None:
        # Not with pack_into(), which writes zeros first: a reader would see a ledger without numbers.
        self._length[0] = self._used


class ProcessLedgers:
    """The ledgers of all processes of a worker, in one folder that belongs to the parent."""

    def __init__(self, folder: Path, *, added: Collection[str] = (), passing: Collection[str] = ()) -> None:
        """
        Args:
            folder: exists and is empty.
            added: the metrics whose values are added up, too, over living processes.
            passing: the other metrics of which no value outlives its process.
        """
        self._folder = folder
        self._added = added
        self._mortal = {*added, *passing}
        self._lock = threading.Lock()
        self._retired: dict[Key, Reading] = {}
        self._following = threading.Lock()
        """Not the lock above: a probe must not wait for a scrape."""
        self._followed: dict[Path, _Followed] = {}

    def path(self, name: str) -> Path:
        """Where the process of that name opens its ledger; a name is used once, also by a successor."""
        return self._folder / f"{name}.ledger"

    def retire(self, name: str) -> None:
        """Called once the process is gone. Its file goes, and so do values that it alone could change; the rest is kept."""
        path = self.path(name)
        with self._lock:
            if path.exists():
                self._merge(self._retired, (each for each in _read_file(path) if each[0][0] not in self._mortal))
                path.unlink()

    def living(self, *names: str) -> dict[str, dict[Key, Reading]]:
        """The numbers of these names, of each process that is not retired. However many others there are, it costs little."""
        found: dict[str, dict[Key, Reading]] = {}
        with self._following:
            before, self._followed = self._followed, {}
            for path in sorted(self._folder.glob("*.ledger")):
                known = before.get(path)
                followed = known if known is not None and known.names == names else _Followed(path, names)
                with suppress(FileNotFoundError):  # retired in this moment
                    found[path.stem] = followed.read()
                    self._followed[path] = followed
        return found

    def read(self) -> dict[Key, Reading]:
        """Sums are added up and values taken from the latest stamp, over living and retired processes."""
        with self._lock:
            merged = dict(self._retired)
            for path in sorted(self._folder.glob("*.ledger")):
                self._merge(merged, _read_file(path))
        return merged

    def _merge(self, into: dict[Key, Reading], readings: Iterable[tuple[Key, Reading]]) -> None:
        for key, reading in readings:
            known = into.get(key)
            if known is None:
                into[key] = reading
            elif (reading.stamp == 0.0 and known.stamp == 0.0) or key[0] in self._added:
                into[key] = Reading(known.value + reading.value, max(known.stamp, reading.stamp))
            elif reading.stamp >= known.stamp:
                into[key] = reading


def _reserve(descriptor: int, size: int) -> None:
    """Makes the file this long. This raises where its disk is full; a page without room would kill the process (SIGBUS)."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except AttributeError:  # macOS
        os.ftruncate(descriptor, size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        os.ftruncate(descriptor, size)  # a file system that reserves nothing


def _aligned(position: int) -> int:
    return (position + 7) & ~7


class _Followed:
    """Some numbers of a file that another process writes. Records are only ever added, so each is parsed once."""

    def __init__(self, path: Path, names: tuple[str, ...]) -> None:
        self.names = names
        self._path = path
        self._slots: dict[Key, int] = {}
        """Where in the file the entry of a key is."""
        self._parsed = _HEADER

    def read(self) -> dict[Key, Reading]:
        with self._path.open("rb", buffering=0) as file:
            descriptor = file.fileno()
            header = os.pread(descriptor, _HEADER, 0)
            used = _USED.unpack(header)[0] if len(header) == _HEADER else 0
            if used > self._parsed:
                self._parse(os.pread(descriptor, used - self._parsed, self._parsed))
            entries = {key: os.pread(descriptor, _ENTRY.size, slot) for key, slot in self._slots.items()}
        return {key: Reading(*_ENTRY.unpack(entry)) for key, entry in entries.items()}

    def _parse(self, content: bytes) -> None:
        start = self._parsed
        for key, slot in _records(content, 0, len(content)):
            if key[0] in self.names:
                self._slots[key] = start + slot
            self._parsed = start + slot + _ENTRY.size


def _read_file(path: Path) -> Iterator[tuple[Key, Reading]]:
    content = path.read_bytes()
    if len(content) < _HEADER:
        return
    (used,) = _USED.unpack_from(content, 0)
    # A file that grows while it is read may announce more than was read; the next read gets the rest.
    for key, slot in _records(content, _HEADER, min(used, len(content))):
        yield key, Reading(*_ENTRY.unpack_from(content, slot))


def _records(content: bytes, position: int, end: int) -> Iterator[tuple[Key, int]]:
    """Each key, and where its entry is. Positions are multiples of 8, as those in the file are."""
    while position + _LENGTH.size <= end:
        (length,) = _LENGTH.unpack_from(content, position)
        start = position + _LENGTH.size
        slot = _aligned(start + length)
        if slot + _ENTRY.size > end:
            return
        yield tuple(content[start : start + length].decode().split(_SEPARATOR)), slot
        position = slot + _ENTRY.size
