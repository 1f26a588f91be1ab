"""What became of each message of a load: sent, acknowledged, received, and in which order."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from streamkit.cli.load.latencies import Latencies

__all__ = ["HEADER_BYTES", "Arrival", "Ledger"]

# Each payload begins with:
#
#   0        8        16            24
#   | run    | number | due (ns)    | filler ...
#
# The run distinguishes the messages of this load from others in the destination. The number is the message's place in
# the load. It is due when the load's rate says so, which may be before it can be sent.
_HEAD = struct.Struct(">QQQ")
HEADER_BYTES = _HEAD.size
"""The least size of a payload."""

_ACKNOWLEDGED = 1
_MOST_RECEIVED = 255


class Arrival(Enum):
    """The kind of a message's arrival."""

    FIRST = "first"
    DUPLICATE = "duplicate"
    FOREIGN = "foreign"
    """It belongs to another load."""


@dataclass(slots=True)
class Ledger:
    """The accounts of one load.

    Attributes:
        run: The number of this load, at most 64 bits.
        senders: How many senders there are. Message n belongs to sender n % senders, which sends its own one by one.
        size: Bytes of each payload, at least `HEADER_BYTES`.
        measured_from: Messages due before this time (ns) are checked, but do not count for latencies and rates.
        sent: Messages that were handed to the binding.
        acknowledged: Of these, the ones that it accepted.
        last_acknowledged: When the last one was accepted, in nanoseconds.
        failed: Failed sends by the text of the error.
        received: First arrivals.
        duplicates: Further arrivals of the same messages.
        disordered: First arrivals behind a later message of the same sender.
        foreign: Arrivals of other loads.
        send_latencies: From when a message was due until it was acknowledged.
        trip_latencies: From when a message was due until the listener was called.
    """

    run: int
    senders: int
    size: int
    measured_from: int = 0
    sent: int = 0
    acknowledged: int = 0
    last_acknowledged: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    received: int = 0
    duplicates: int = 0
    disordered: int = 0
    foreign: int = 0
    send_latencies: Latencies = field(default_factory=Latencies)
    trip_latencies: Latencies = field(default_factory=Latencies)
    _unreceived: int = 0
    _fates: bytearray = field(default_factory=bytearray)
    _arrivals: bytearray = field(default_factory=bytearray)
    _latest: dict[int, int] = field(default_factory=dict)
    _filler: bytes = b""

    def __post_init__(self) -> None:
        # Not all zeros: compression would make the load smaller than its size says.
        pattern = bytes((7 * number + number // 251) % 256 for number in range(self.size))
        self._filler = pattern[HEADER_BYTES:]

    def payload(self, number: int, due: int) -> bytes:
        """Return the payload of a message that is due at a time (ns), and count it as sent."""
        self.sent += 1
        return _HEAD.pack(self.run, number, due) + self._filler

    def acknowledge(self, number: int, due: int, now: int) -> None:
        """Count a message as accepted by the binding at the time `now` (ns)."""
        self.acknowledged += 1
        self.last_acknowledged = now
        _put(self._fates, number, _ACKNOWLEDGED)
        if not _at(self._arrivals, number):
            self._unreceived += 1
        if due >= self.measured_from:
            self.send_latencies.add((now - due) // 1000)

    def fail(self, error: Exception) -> None:
        """Count a failed send. Whether the message is stored is unknown."""
        text = str(error) or type(error).__name__
        self.failed[text] = self.failed.get(text, 0) + 1

    def receive(self, payload: bytes, now: int) -> Arrival:
        """Count an arrival at the time `now` (ns)."""
        if len(payload) != self.size:
            self.foreign += 1
            return Arrival.FOREIGN
        run, number, due = _HEAD.unpack_from(payload)
        if run != self.run:
            self.foreign += 1
            return Arrival.FOREIGN
        times = _at(self._arrivals, number)
        _put(self._arrivals, number, min(times + 1, _MOST_RECEIVED))
        if times:
            self.duplicates += 1
            return Arrival.DUPLICATE
        self.received += 1
        if _at(self._fates, number):
            self._unreceived -= 1
        sender = number % self.senders
        if number < self._latest.get(sender, -1):
            self.disordered += 1
        else:
            self._latest[sender] = number
        if due >= self.measured_from:
            self.trip_latencies.add((now - due) // 1000)
        return Arrival.FIRST

    @property
    def unreceived(self) -> int:
        """Acknowledged messages that have not arrived."""
        return self._unreceived

    def lost(self) -> Iterator[int]:
        """Return the numbers of acknowledged messages that have not arrived."""
        return (number for number, fate in enumerate(self._fates) if fate and not _at(self._arrivals, number))


def _at(values: bytearray, index: int) -> int:
    return values[index] if index < len(values) else 0


def _put(values: bytearray, index: int, value: int) -> None:
    if index >= len(values):
        values.extend(bytes(max(index + 1, 2 * len(values)) - len(values)))
    values[index] = value
