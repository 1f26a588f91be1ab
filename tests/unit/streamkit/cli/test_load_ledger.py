"""What the accounts of a load say of lost, repeated, disordered and strange messages."""

from hypothesis import given
from hypothesis import strategies as st

from streamkit.cli.load.latencies import Latencies
from streamkit.cli.load.ledger import HEADER_BYTES, Arrival, Ledger
from streamkit.cli.load.verdict import judge

RUN = 7


def ledger(senders: int = 1) -> Ledger:
    """Return empty accounts of payloads that have four bytes besides their header."""
    return Ledger(RUN, senders, HEADER_BYTES + 4)


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.floats(0, 1, exclude_min=True, allow_subnormal=False)
)
def test_percentile_is_at_most_a_32nd_too_large(durations: list[int], part: float) -> None:
    """The exact percentile is the least duration that this part of all durations does not exceed."""
    latencies = Latencies()
    for duration in durations:
        latencies.add(duration)
    exact = next(value for value in sorted(durations) if sum(d <= value for d in durations) >= len(durations) * part)
    found = latencies.percentile(part)
    assert found is not None
    assert exact <= found <= exact + exact / 32


def test_no_durations_have_no_percentile() -> None:
    assert Latencies().percentile(0.5) is None


def test_lost_messages_are_acknowledged_and_never_received() -> None:
    """A message that failed, and one that arrived before its acknowledgement, are not lost."""
    accounts = ledger()
    payloads = [accounts.payload(number, due=0) for number in range(4)]
    accounts.acknowledge(0, 0, 1)
    accounts.acknowledge(1, 0, 1)
    accounts.fail(ValueError("refused"))
    accounts.receive(payloads[3], 1)
    accounts.acknowledge(3, 0, 1)
    assert accounts.unreceived == 2
    accounts.receive(payloads[1], 2)
    assert (accounts.unreceived, list(accounts.lost())) == (1, [0])
    verdict = judge(accounts, False, 1.0, 0.0, was_interrupted=False)
    assert (verdict.lost, verdict.first_lost, verdict.failures) == (1, (0,), {"refused": 1})
    assert verdict.complaints == ("1 acknowledged message(s) not received (numbers 0)", "1 send(s) failed")


def test_second_arrival_is_a_duplicate_and_breaks_no_order() -> None:
    accounts = ledger()
    first, second = (accounts.payload(number, due=0) for number in range(2))
    arrivals = [accounts.receive(payload, 1) for payload in (first, second, first)]
    assert arrivals == [Arrival.FIRST, Arrival.FIRST, Arrival.DUPLICATE]
    assert (accounts.received, accounts.duplicates, accounts.disordered) == (2, 1, 0)


@given(st.permutations(range(12)), st.integers(1, 4))
def test_message_behind_a_later_one_of_its_sender_is_disordered(order: list[int], senders: int) -> None:
    accounts = ledger(senders)
    payloads = [accounts.payload(number, due=0) for number in range(12)]
    for number in order:
        accounts.receive(payloads[number], 1)
    behind = [
        number
        for place, number in enumerate(order)
        if any(other > number and other % senders == number % senders for other in order[:place])
    ]
    assert accounts.disordered == len(behind)
    assert accounts.unreceived == 0


def test_messages_of_another_load_are_not_received() -> None:
    """They may have another size, or another number of their run."""
    accounts = ledger()
    other = Ledger(RUN + 1, 1, HEADER_BYTES + 4).payload(0, due=0)
    assert [accounts.receive(payload, 1) for payload in (other, b"short", b"")] == [Arrival.FOREIGN] * 3
    assert (accounts.received, accounts.foreign) == (0, 3)


def test_messages_of_the_warm_up_count_for_no_latency() -> None:
    accounts = ledger()
    accounts.measured_from = 1000
    for number, due in enumerate((999, 1000)):
        payload = accounts.payload(number, due)
        accounts.acknowledge(number, due, 5_000_000)
        accounts.receive(payload, 9_000_000)
    assert (len(accounts.send_latencies), len(accounts.trip_latencies)) == (1, 1)


def test_load_without_an_acknowledged_message_fails() -> None:
    """Otherwise a load that sent nothing would pass."""
    assert judge(ledger(), False, 0.0, 0.0, was_interrupted=False).complaints == ("no message was acknowledged",)
