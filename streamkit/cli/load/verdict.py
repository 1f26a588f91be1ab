"""The verdict on a load: what was lost, delivered twice or out of order, and the rates and latencies."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from streamkit.cli.load.ledger import Ledger

__all__ = ["Verdict", "judge"]

_NAMED_NUMBERS = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """The results of a load.

    Attributes:
        sent: Messages that were handed to the binding.
        acknowledged: Of these, the ones that it accepted.
        received: Different messages that the listener was called with.
        lost: Acknowledged, but not received.
        first_lost: The numbers of the first lost ones.
        duplicates: Further calls with the same messages. At least once allows them.
        disordered: Messages that arrived behind a later one of the same sender; None if order was not asked for.
        foreign: Messages of other loads.
        failures: Failed sends by the text of their error.
        seconds: From the first send to the last acknowledgement.
        sent_per_second: Acknowledged messages a second.
        send_us: Microseconds until a message was acknowledged, by percentile; None without a message.
        trip_us: Microseconds until the listener was called, by percentile; None without a message.
        cpu_us: Microseconds of CPU of this process for each message, its sending and receiving.
        was_interrupted: Whether Ctrl-C ended the sending.
    """

    sent: int
    acknowledged: int
    received: int
    lost: int
    first_lost: tuple[int, ...]
    duplicates: int
    disordered: int | None
    foreign: int
    failures: Mapping[str, int]
    seconds: float
    sent_per_second: float
    send_us: Mapping[str, int | None]
    trip_us: Mapping[str, int | None]
    cpu_us: float
    was_interrupted: bool

    @property
    def failed(self) -> int:
        """Failed sends."""
        return sum(self.failures.values())

    @property
    def complaints(self) -> tuple[str, ...]:
        """The violations of the delivery contract, each as a sentence; empty if there are none."""
        found = []
        if not self.acknowledged:
            found.append("no message was acknowledged")
        if self.lost:
            numbers = ", ".join(map(str, self.first_lost))
            more = ", ..." if self.lost > len(self.first_lost) else ""
            found.append(f"{self.lost} acknowledged message(s) not received (numbers {numbers}{more})")
        if self.disordered:
            found.append(f"{self.disordered} message(s) arrived behind a later one of the same sender")
        if self.failed:
            found.append(f"{self.failed} send(s) failed")
        return tuple(found)


def judge(ledger: Ledger, ordered: bool, seconds: float, cpu: float, *, was_interrupted: bool) -> Verdict:
    """Return the verdict on a load that has ended.

    Args:
        ledger: The accounts.
        ordered: Whether order was asked for.
        seconds: From the first send to the last acknowledgement.
        cpu: Seconds of CPU of this process.
        was_interrupted: Whether Ctrl-C ended the sending.
    """
    return Verdict(
        sent=ledger.sent,
        acknowledged=ledger.acknowledged,
        received=ledger.received,
        lost=ledger.unreceived,
        first_lost=tuple(islice(ledger.lost(), _NAMED_NUMBERS)),
        duplicates=ledger.duplicates,
        disordered=ledger.disordered if ordered else None,
        foreign=ledger.foreign,
        failures=ledger.failed,
        seconds=seconds,
        sent_per_second=ledger.acknowledged / seconds if seconds else 0.0,
        send_us=ledger.send_latencies.summary(),
        trip_us=ledger.trip_latencies.summary(),
        cpu_us=cpu / ledger.sent * 1e6 if ledger.sent else 0.0,
        was_interrupted=was_interrupted,
    )
