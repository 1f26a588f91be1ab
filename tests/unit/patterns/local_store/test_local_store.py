"""Applications with a local store, in memory and on virtual time."""

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamkit import StreamApplication
from streamkit.errors import ConfigurationError
from streamkit.events import message_kept, message_sent
from streamkit.patterns.local_store import RECEIPT, SendReceipt, SendStatus
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.binder.test_late_binding import FlakyPlugin

STREAM = "spring.cloud.stream"
STORE = "streamkit.local-store"
PROGRAM = Path(__file__).parent / "killed_sender.py"


def make_app(*plugins: object, **store: str) -> StreamApplication:
    """Return an application with the output `out` and a local store."""
    settings = {f"{STORE}.{key.replace('__', '.').replace('_', '-')}": value for key, value in store.items()}
    return StreamApplication(
        config_location="optional:/none",
        plugins=plugins,
        properties={
            f"{STREAM}.output-bindings": "out",
            f"{STREAM}.bindings.out.destination": "topic",
            f"{STORE}.path": "/nowhere/unsent.db",
            **settings,
        },
    )


def test_kept_message_is_told_from_a_stored_one() -> None:
    """By its receipt and by its signal; the receipt is not sent. In a test the store is in memory."""
    app = make_app()
    log: list[str] = []
    received: list[tuple[int, object]] = []

    def sent(sender: object, *, binding: str, message: Any) -> None:
        log.append(f"sent {message.payload.decode()}")

    def kept(sender: object, *, binding: str, message: Any) -> None:
        log.append(f"kept {message.payload.decode()}")

    with (
        message_sent.connected_to(sent),
        message_kept.connected_to(kept),
        app.test(chaos="seed=1,drop-connection=60%") as test,
    ):
        for number in range(12):
            receipt = SendReceipt()
            test.run(app.bridge.asend("out", number, {RECEIPT: receipt, "streamkit_key": str(number % 3)}))
            assert log[-1] == f"{'kept' if receipt.status is SendStatus.KEPT else 'sent'} {number}"
        test.advance(minutes=3)
        messages = test.output("out").receive_all()
        received = [(int(each.payload), each.headers.get(RECEIPT)) for each in messages]
    assert Counter(log) >= Counter(f"sent {number}" for number in range(12))
    assert {number for number, _ in received} == set(range(12))
    assert {receipt for _, receipt in received} == {None}


def test_message_is_kept_before_the_binding_is_bound() -> None:
    """The messaging system is away when the application starts."""
    app = StreamApplication(
        config_location="optional:/none",
        plugins=[FlakyPlugin(up_at=45)],
        properties={
            f"{STREAM}.default-binder": "flaky",
            f"{STREAM}.inmemory.binder.stands-in-for": "inmemory",
            f"{STREAM}.output-bindings": "out",
            f"{STREAM}.bindings.out.destination": "topic",
            f"{STREAM}.bindings.in.destination": "topic",
            f"{STORE}.path": "unsent.db",
        },
    )
    received: list[int] = []

    @app.stream_listener("in")
    async def note(number: int) -> None:
        received.append(number)

    async def case() -> None:
        await app.start(watch_loop=False)
        try:
            receipts = [SendReceipt(), SendReceipt()]
            assert await app.bridge.asend("out", 1, {RECEIPT: receipts[0]})
            await asyncio.sleep(70)
            assert await app.bridge.asend("out", 2, {RECEIPT: receipts[1]})
            await asyncio.sleep(1)
            assert [receipt.status for receipt in receipts] == [SendStatus.KEPT, SendStatus.STORED]
        finally:
            await app.stop()

    with VirtualTime() as time:
        time.run(case())
    assert received == [1, 2]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"bindings__out__keep_expression": "payload."}, "streamkit.local-store.bindings.out.keep-expression"),
        ({"bindings__out__keep_name": "unknown"}, "nothing is registered as 'unknown'"),
        ({"bindings__out__keep_name": "a", "bindings__out__keep_expression": "true"}, "remove one of them"),
        ({"max_size": "many"}, "expected a size"),
        ({"max_cout": "7"}, "max-count"),
    ],
)
def test_wrong_setting_is_an_error_at_the_start(settings: dict[str, str], error: str) -> None:
    """Not at the first message that is to be kept."""
    app = make_app(**settings)
    with pytest.raises(ConfigurationError, match=error), app.test():
        raise AssertionError("started")


def test_binding_may_have_its_own_rule_or_no_store() -> None:
    """An expression, a registered function, or `enabled=false`."""
    statuses: dict[str, bool] = {}
    for name, settings in {
        "expression": {"bindings__out__keep_expression": "headers['kind'] != 'metric'"},
        "function": {"bindings__out__keep_name": "kept"},
        "none": {"bindings__out__enabled": "false"},
    }.items():
        app = make_app(**settings)
        app.register("kept", lambda message: message.headers["kind"] != "metric")
        with app.test(chaos="seed=1,drop-connection=100%") as test:
            for kind in ("metric", "order"):
                try:
                    test.run(app.bridge.asend("out", 1, {"kind": kind}))
                    statuses[f"{name} {kind}"] = True
                except Exception:
                    statuses[f"{name} {kind}"] = False
    assert statuses == {
        "expression metric": False,
        "expression order": True,
        "function metric": False,
        "function order": True,
        "none metric": False,
        "none order": False,
    }


@pytest.mark.promise
def test_sender_may_be_killed_at_any_time(tmp_path: Path) -> None:
    """What was reported as kept is sent; at most the chunk that was under way is sent twice, with the same ids."""
    path, sent = tmp_path / "unsent.db", tmp_path / "sent.txt"
    reported: set[str] = set()
    for mode, lines in (("keep", 300), ("send", 120)):
        process = subprocess.Popen([sys.executable, PROGRAM, mode, path, sent], stdout=subprocess.PIPE, text=True)
        with process:
            assert process.stdout is not None
            for _ in range(lines):
                line = process.stdout.readline()
                if mode == "keep":
                    reported.add(line.strip())
            process.kill()
    subprocess.run([sys.executable, PROGRAM, "finish", path, sent], check=True)
    arrived = Counter(line for line in sent.read_text().splitlines() if line.endswith("."))
    assert reported <= {line.removesuffix(".") for line in arrived}
    twice = [count for count in arrived.values() if count > 1]
    assert max(twice, default=1) <= 2
    assert len(twice) <= 50
