"""Faults of `app.test`: what an application must bear, and that a seed repeats it."""

import re
from collections import Counter

import pytest

from streamkit import StreamApplication, send_to

ORDERS = 100
CONFIG = {
    "spring.cloud.stream.bindings.orders.destination": "orders",
    "spring.cloud.stream.bindings.orders.group": "kitchen",
    "spring.cloud.stream.bindings.receipts.destination": "receipts",
}


def application() -> StreamApplication:
    """Return an application that reads no files."""
    return StreamApplication(config_location="optional:/none", properties=CONFIG)


def handled_with(chaos: str | None) -> tuple[list[bytes], list[bytes]]:
    """Send orders, and return those that the listener handled, and the receipts that it sent, in their order."""
    app = application()
    handled: list[bytes] = []

    @app.stream_listener("orders")
    @send_to("receipts")
    async def handle(order: bytes) -> bytes:
        handled.append(order)
        return order

    with app.test(chaos=chaos) as test:
        for number in range(ORDERS):
            test.input("orders").send(b"%d" % number)
        test.advance(minutes=1)
        receipts = [message.payload for message in test.output("receipts").receive_all()]
    return handled, receipts


@pytest.mark.parametrize("fault", ["duplicate=10%", "reorder=20%", "drop-connection=10%", "delay=20ms"])
def test_no_message_is_lost(fault: str) -> None:
    """Each order is handled, and has a receipt."""
    handled, receipts = handled_with(f"seed=7,{fault}")
    assert {*handled} == {*receipts} == {b"%d" % number for number in range(ORDERS)}


@pytest.mark.parametrize("fault", ["duplicate=10%", "drop-connection=10%"])
def test_faults_repeat_some_messages(fault: str) -> None:
    """A message that is stored twice, or whose acceptance is lost, is handled twice."""
    handled, _ = handled_with(f"seed=7,{fault}")
    assert {1, 2} <= {*Counter(handled).values()}


def test_ordered_consumer_keeps_the_order() -> None:
    """A message whose acceptance is lost is delivered again before those behind it."""
    app = application()
    handled: list[int] = []

    @app.stream_listener("orders")
    async def handle(order: bytes) -> None:
        handled.append(int(order))

    key = "spring.cloud.stream.rocketmq.bindings.orders.consumer.push.orderly"
    with app.test(chaos="seed=7,drop-connection=10%", properties={key: "true"}) as test:
        for number in range(ORDERS):
            test.input("orders").send(b"%d" % number, {"partition": 0})
        test.advance(minutes=1)
    assert {*handled} == {*range(ORDERS)}
    assert len(handled) > ORDERS
    assert handled == sorted(handled)


def test_a_seed_repeats_the_faults() -> None:
    """Two runs with one seed do the same, and a run with another seed does not."""
    faults = "duplicate=5%,reorder=10%,drop-connection=3%,delay=20ms"
    first = handled_with(f"seed=7,{faults}")
    assert first == handled_with(f"seed=7,{faults}")
    assert first != handled_with(f"seed=8,{faults}")
    assert handled_with(None) == handled_with(None)


def test_failure_shows_what_repeats_it() -> None:
    """The note names the seed, also one that was chosen."""
    app = application()
    with pytest.raises(AssertionError) as failure, app.test(chaos="duplicate=1%"):
        raise AssertionError
    (note,) = failure.value.__notes__
    assert re.fullmatch(r"To repeat the faults of this test: app\.test\(chaos='seed=\d+,duplicate=1%'\)", note)


def test_wrong_fault_is_refused() -> None:
    """The error says what may stand there."""
    with pytest.raises(ValueError, match="'duplicates=1%' is not one of"):
        application().test(chaos="duplicates=1%")
