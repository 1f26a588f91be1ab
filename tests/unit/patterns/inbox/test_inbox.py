"""Idempotent listeners: messages of one key are handled once. In memory, on virtual time."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Annotated, Any, cast

import pytest

from streamkit import Acknowledgment, Header, Message, MessageHeaders, Reject, Requeue, StreamApplication
from streamkit.config.pattern_properties import InboxProperties
from streamkit.errors import ConfigurationError, ConfigurationErrors
from streamkit.events import message_duplicate
from streamkit.listeners.advice import AdvisedListener, ListenerCall, WatchedThreads
from streamkit.listeners.invocation import ListenerHandler
from streamkit.listeners.listener import IdempotentBy, Listener
from streamkit.patterns.inbox import MESSAGE_ID, Claim, InboxSession, Mark, MarkStore, MemoryMarks
from streamkit.patterns.inbox.inbox import Inbox
from streamkit.patterns.inbox.message_key import message_key
from streamkit.settlement import ACCEPT
from streamkit.testing.harness import Harness

STREAM = "spring.cloud.stream"


def make_app(**inbox: str) -> StreamApplication:
    """Return an application with the inputs `a` and `b`, the output `c`, and the store `memory`."""
    table = {f"{STREAM}.bindings.{name}.destination": name for name in "abc"}
    table |= {f"{STREAM}.bindings.{name}.group": "g" for name in "ab"}
    table |= {"streamkit.inbox.store": "memory"}
    table |= {key.replace("__", ".").replace("_", "-"): value for key, value in inbox.items()}
    return StreamApplication(config_location="optional:/none", properties=table)


@pytest.fixture
def duplicates() -> Iterator[list[str]]:
    """The keys of the messages that were left out."""
    keys: list[str] = []

    def note(sender: object, *, binding: str, message: object, key: str) -> None:
        keys.append(f"{binding} {key}")

    with message_duplicate.connected_to(note):
        yield keys


def send(test: Harness, *payloads: object, to: str = "a", **headers: object) -> None:
    """Send messages one after the other, and let the application do what is due."""
    for payload in payloads:
        test.input(to).send(Message(payload, MessageHeaders(headers)))
        test.settle()


@pytest.mark.parametrize(
    "by",
    [
        "payload.id",
        Header("order"),
        lambda message: message.headers["order"],
        "headers['order']",
    ],
)
def test_message_of_a_known_key_is_accepted_without_a_call(by: IdempotentBy, duplicates: list[str]) -> None:
    """Whatever gives the key: an expression, a header, a function."""
    app = make_app()
    handled: list[object] = []

    @app.stream_listener("a", idempotent_by=by)
    async def book(order: dict[str, int]) -> None:
        handled.append(order["id"])

    with app.test() as test:
        for number in (1, 2, 1):
            send(test, {"id": number}, order=number)
        assert not test.errors
    assert (handled, duplicates) == ([1, 2], ["a 1"])


class CountedClaim(Claim):
    """A claim that counts its ends."""

    ends = 0

    async def commit(self, done: object) -> None:
        self.ends += 1

    async def abandon(self) -> None:
        self.ends += 1


class CountingStore(MarkStore):
    """A store of an application's own, to which each mark after the first is done."""

    def __init__(self) -> None:
        self.claims: list[CountedClaim] = []

    async def claim(self, marks: Any, **_: object) -> Claim:
        self.claims.append(CountedClaim([] if self.claims else marks, marks if self.claims else [], []))
        return self.claims[-1]


def test_each_claim_of_a_store_ends_once() -> None:
    """Also that of a duplicate, for which a store may hold a connection."""
    app, store = make_app(streamkit__inbox__store="counting"), CountingStore()
    app.register("counting", store)

    @app.stream_listener("a", idempotent_by="payload")
    async def book(order: int) -> None: ...

    with app.test() as test:
        send(test, 1, 1)
    assert [each.ends for each in store.claims] == [1, 1]


def test_listener_that_is_a_def_is_called_once() -> None:
    """On its thread."""
    app = make_app()
    handled: list[int] = []

    @app.stream_listener("a", idempotent_by="payload")
    def book(order: int) -> None:
        handled.append(order)

    with app.test() as test:
        send(test, 1, 1, 2)
    assert handled == [1, 2]


def test_setting_makes_all_listeners_idempotent() -> None:
    """By the id that the sender gave the message; a decorator may say otherwise."""
    app = make_app(streamkit__inbox__idempotent_by=MESSAGE_ID)
    handled: list[str] = []

    @app.stream_listener("a")
    async def once(order: str) -> None:
        handled.append(order)

    @app.stream_listener("b", idempotent_by=False)
    async def always(order: str) -> None:
        handled.append(order)

    with app.test() as test:
        for binding in "ab":
            send(test, f"{binding} one", to=binding, id="1")
            send(test, f"{binding} again", to=binding, id="1")
            send(test, f"{binding} two", to=binding, id="2")
    assert handled == ["a one", "a two", "b one", "b again", "b two"]


def test_id_of_a_message_survives_its_dead_letter() -> None:
    """A failed run leaves no mark: the dead letter is handled once, however often it is sent again."""
    app = make_app()
    handled: list[str] = []

    @app.stream_listener("a", idempotent_by=MESSAGE_ID)
    async def book(order: str, retry: Annotated[bool, Header(required=False)]) -> None:
        if not retry:
            raise Reject("the stock is closed")
        handled.append(order)

    with app.test() as test:
        send(test, "tea")
        letter = test.dead_letters("a").receive()
        for _ in range(2):
            test.input("a").send(Message(letter.payload, letter.headers.annotated("retry", True)))
            test.settle()
    assert handled == ["tea"]


@pytest.mark.parametrize("outcome", [ValueError("no"), Requeue(), Reject()])
def test_failed_run_leaves_no_mark(outcome: Exception) -> None:
    """The next attempt, the redelivery and another message of the key are handled."""
    app = make_app()
    calls: list[int] = []

    @app.stream_listener("a", idempotent_by="payload")
    async def book(order: int) -> None:
        calls.append(order)
        if len(calls) == 1:
            raise outcome

    with app.test() as test:
        send(test, 1)
        test.advance(minutes=5)
        send(test, 1, 1)
    assert calls == [1, 1]


def test_attempts_of_one_delivery_are_one_message() -> None:
    """A duplicate that comes between two attempts is left out if it is handled first, or leaves the attempt out."""
    app = make_app()
    calls: list[str] = []

    @app.stream_listener("a", idempotent_by="payload.id")
    async def book(order: dict[str, str]) -> None:
        calls.append(order["name"])
        if len(calls) == 1:
            raise ValueError("no")

    with app.test() as test:
        send(test, {"id": "1", "name": "first"}, {"id": "1", "name": "second"})
        test.advance(minutes=5)
    assert calls == ["first", "second"]


def test_expired_mark_does_not_count() -> None:
    """After `expiry` a message of the key is handled again."""
    app = make_app(streamkit__inbox__expiry="1h")
    handled: list[int] = []

    @app.stream_listener("a", idempotent_by="payload")
    async def book(order: int) -> None:
        handled.append(order)

    with app.test() as test:
        send(test, 1)
        test.advance(minutes=59)
        send(test, 1)
        test.advance(minutes=2)
        send(test, 1)
    assert handled == [1, 1]


def concurrent_app(wait: str) -> tuple[StreamApplication, list[str]]:
    """Return an application whose listener works for 10 seconds, or for 1 if its message says so."""
    app = make_app(
        streamkit__inbox__wait=wait, **{f"{STREAM}__bindings__a__consumer__concurrency".replace(".", "__"): "4"}
    )
    log: list[str] = []

    @app.stream_listener("a", idempotent_by="payload.id")
    async def book(order: dict[str, Any]) -> None:
        log.append(f"begin {order['id']}")
        await asyncio.sleep(order.get("seconds", 10))
        log.append(f"end {order['id']}")
        if order.get("fails"):
            raise Requeue(after=timedelta(hours=1))

    return app, log


def test_concurrent_duplicate_waits_and_is_left_out(duplicates: list[str]) -> None:
    """Another key is handled meanwhile."""
    app, log = concurrent_app("30s")
    with app.test() as test:
        send(test, {"id": "1"}, {"id": "1"}, {"id": "2", "seconds": 1})
        test.advance(seconds=20)
    assert log == ["begin 1", "begin 2", "end 2", "end 1"]
    assert duplicates == ["a 1"]


def test_concurrent_duplicate_runs_when_the_first_has_failed() -> None:
    """It waits for the run, not for the redelivery."""
    app, log = concurrent_app("30s")
    with app.test() as test:
        send(test, {"id": "1", "fails": True}, {"id": "1"})
        test.advance(seconds=25)
    assert log == ["begin 1", "end 1", "begin 1", "end 1"]


def test_duplicate_comes_again_when_it_has_waited_long_enough(duplicates: list[str]) -> None:
    """It is redelivered as after a failure, and left out then."""
    app, log = concurrent_app("0")
    with app.test() as test:
        send(test, {"id": "1"}, {"id": "1"})
        assert duplicates == []
        test.advance(minutes=2)
    assert (log, duplicates) == (["begin 1", "end 1"], ["a 1"])


def test_results_are_sent_once_and_have_the_same_ids_in_each_run() -> None:
    """So a listener after this one knows those that a killed process has sent before its mark was committed."""

    def ids_of_results(payloads: list[int]) -> list[str]:
        app = make_app()

        @app.stream_listener("a", idempotent_by="payload")
        @app.send_to("c")
        async def book(order: int) -> list[Message[int]]:
            return [Message(order), Message(order), Message(order, MessageHeaders({"id": "mine"}))]

        with app.test() as test:
            send(test, *payloads)
            return [message.headers.id for message in test.output("c").receive_all()]

    ids = ids_of_results([1, 1])
    assert len(set(ids)) == 3
    assert ids[2] == "mine"
    assert ids_of_results([1]) == ids
    assert set(ids_of_results([2])) & set(ids) == {"mine"}


def test_two_listeners_of_a_binding_have_marks_of_their_own() -> None:
    """If the second one fails, the first one is not called again with the message."""
    app = make_app()
    calls: list[str] = []

    @app.stream_listener("a", idempotent_by="payload")
    async def first(order: int) -> None:
        calls.append("first")

    @app.stream_listener("a", condition="headers['kind'] == 'new'", idempotent_by="payload")
    async def second(order: int) -> None:
        calls.append("second")
        if calls.count("second") == 1:
            raise ValueError("no")

    with app.test() as test:
        send(test, 1, kind="new")
        test.advance(minutes=1)
    assert calls == ["first", "second", "second"]


def batch_app() -> StreamApplication:
    """Return an application whose binding `a` is in batch mode."""
    return make_app(**{"spring__cloud__stream__bindings__a__consumer__batch-mode": "true"})


def fill(test: Harness, *payloads: object) -> None:
    """Send messages of one partition while the binding is stopped, so that they come as one batch."""

    async def fill() -> None:
        await test.app.binding("a").stop()
        for payload in payloads:
            await test.app.bridge.asend("c", Message(payload, {"scst_partition": 0}))
        await test.app.binding("a").start()

    test.run(fill())
    test.settle()


def test_batch_leaves_out_what_was_handled(duplicates: list[str]) -> None:
    """Before, or earlier in the batch; the others are handled in one call."""
    app = batch_app()
    calls: list[list[int]] = []

    @app.stream_listener("a", idempotent_by="payload")
    async def book(orders: list[int]) -> None:
        calls.append(orders)

    with app.test(properties={f"{STREAM}.bindings.a.destination": "c"}) as test:
        fill(test, 1, 2, 1)
        fill(test, 2, 3, 1)
        fill(test, 1, 2)
    assert calls == [[1, 2], [3]]
    assert duplicates == ["a 1", "a 2", "a 1", "a 1", "a 2"]


def test_failed_batch_leaves_no_mark_and_repeats_no_duplicate() -> None:
    """The attempts get what is not handled; what one of them accepts is marked."""
    app = batch_app()
    calls: list[list[int]] = []

    @app.stream_listener("a", idempotent_by="payload")
    async def book(orders: list[int]) -> list[Requeue | Reject | Any] | None:
        calls.append(orders)
        if len(calls) == 2:
            raise ValueError("no")
        return None

    with app.test(properties={f"{STREAM}.bindings.a.destination": "c"}) as test:
        fill(test, 1)
        fill(test, 1, 2, 3)
        test.advance(minutes=1)
        fill(test, 3, 4)
        assert not test.errors
    assert calls == [[1], [2, 3], [2, 3], [4]]


def test_batch_that_fails_for_good_accepts_its_duplicates() -> None:
    """Only the others become dead letters."""
    app = batch_app()

    @app.stream_listener("a", idempotent_by="payload")
    async def book(orders: list[int]) -> None:
        if 2 in orders:
            raise Reject("closed")

    with app.test(properties={f"{STREAM}.bindings.a.destination": "c"}) as test:
        fill(test, 1)
        fill(test, 1, 2)
        assert [letter.payload for letter in test.dead_letters("a").receive_all()] == [b"2"]


def test_batch_marks_only_the_messages_it_accepts() -> None:
    """A message that the listener requeues is handled again."""
    app = batch_app()
    calls: list[list[int]] = []

    @app.stream_listener("a", idempotent_by="payload")
    async def book(orders: list[int]) -> list[object]:
        calls.append(orders)
        return [Requeue() if order == 2 and len(calls) == 1 else ACCEPT for order in orders]

    with app.test(properties={f"{STREAM}.bindings.a.destination": "c"}) as test:
        fill(test, 1, 2)
        test.advance(minutes=5)
        fill(test, 1, 2)
    assert calls == [[1, 2], [2]]


@pytest.mark.parametrize(("app", "deliver"), [(make_app(), send), (batch_app(), fill)])
def test_message_without_a_key_is_rejected(app: StreamApplication, deliver: Callable[..., None]) -> None:
    """No later attempt could find one; in a batch, the others are handled."""
    handled: list[object] = []

    @app.stream_listener("a", idempotent_by="payload.id")
    async def book(orders: Any) -> None:
        handled.append(orders)

    with app.test(properties={f"{STREAM}.bindings.a.destination": "c"}) as test:
        deliver(test, {"id": None}, {"id": [1]}, {"id": True})
        letters = test.dead_letters("a").receive_all()
    assert len(letters) == 3
    assert "the message has no key" in str(letters[0].headers["FAILURE_MESSAGE"])
    assert handled == []


def test_cancelled_thread_keeps_its_key_until_it_ends() -> None:
    """A `def` listener cannot be interrupted, so its message is not handled beside it."""
    may_end = threading.Event()

    class Listening:
        async def handle_message(self, message: Message[object]) -> None:
            await asyncio.get_running_loop().run_in_executor(WatchedThreads(threads), may_end.wait)

    async def cancel() -> None:
        declared = Listener("a", idempotent_by="payload")
        advised = AdvisedListener(no_listener, "x", declared, "a", "g", False, False, lambda: threads)
        properties = InboxProperties(wait=timedelta())
        inbox = Inbox(None, advised, message_key("payload", "x"), MemoryMarks(), properties)
        message: Message[object] = Message("1")
        first = asyncio.create_task(inbox.around(message, ListenerCall(cast("ListenerHandler", Listening()))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        with pytest.raises(Requeue, match="another run handles the message with the key '1'"):
            await inbox.around(message, ListenerCall(cast("ListenerHandler", Listening())))
        may_end.set()
        await asyncio.wait(inbox._late)
        await inbox.around(message, ListenerCall(cast("ListenerHandler", Listening())))

    with ThreadPoolExecutor(1) as threads:
        asyncio.run(cancel())


def fails_to_start(app: StreamApplication, error: str) -> None:
    with pytest.raises((ConfigurationError, ConfigurationErrors), match=error), app.test():
        raise AssertionError("started")


async def no_listener(order: int) -> None: ...


async def async_key(message: Message[object]) -> str:
    """Find a key in a way that nobody awaits."""
    return "key"


@pytest.mark.parametrize(
    ("settings", "by", "error"),
    [
        ({"streamkit__inbox__store": ""}, "payload", "needs a store of marks: set streamkit.inbox.store"),
        ({"streamkit__inbox__store": "marx"}, "payload", "nothing is registered as 'marx'"),
        ({}, "payload.", "idempotent_by of listener .*no_listener"),
        ({"streamkit__inbox__idempotent_by": "payload."}, None, "streamkit.inbox.idempotent-by"),
        ({}, Header(), "the header has no name"),
        ({}, Header, "the header has no name"),
        ({}, async_key, "async_key is an async def, and the function that finds the key is not awaited"),
        ({}, 7, "7 gives no key: expected an expression, a Header, a function"),
        ({"streamkit__inbox__expiry": "0"}, "payload", "expected a duration longer than 0"),
    ],
)
def test_wrong_declaration_is_an_error_at_the_start(settings: dict[str, str], by: Any, error: str) -> None:
    """Not at the first message."""
    app = make_app(**settings)
    app.stream_listener("a", idempotent_by=by)(no_listener)
    fails_to_start(app, error)


def test_listener_that_settles_by_hand_cannot_be_idempotent() -> None:
    """It is not known when such a message is done."""
    app = make_app()

    @app.stream_listener("a", idempotent_by="payload")
    async def book(order: int, acknowledgment: Acknowledgment) -> None: ...

    fails_to_start(app, "takes an Acknowledgment")


def test_store_without_sessions_gives_none() -> None:
    """The listener asks for one."""
    app = make_app()

    @app.stream_listener("a", idempotent_by="payload")
    async def book(order: int, session: Annotated[Any, InboxSession()]) -> None: ...

    fails_to_start(app, "takes the session of its inbox, but <MemoryMarks 0 of at most 100000> has none")


def test_without_the_plugin_an_idempotent_listener_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not be idempotent."""
    monkeypatch.setattr("streamkit.plugins.application_plugins.offers_of", lambda group: {})
    app = make_app()
    app.stream_listener("a", idempotent_by="payload")(no_listener)
    advised = AdvisedListener(no_listener, "x", Listener("a", None, True, "payload"), "a", "g", False, True, _none)
    with pytest.raises(ConfigurationError, match="the plugin 'inbox' of streamkit-messaging is missing"):
        app.plugins.listener_advice(app, advised)


def _none() -> Any: ...


def test_memory_is_bounded_and_cleaned_up_in_slices() -> None:
    """The oldest mark makes room for a new one."""

    async def marks() -> None:
        store = MemoryMarks(limit=3)
        numbered = [Mark("g/a", str(number)) for number in range(5)]
        for now, mark in enumerate(numbered):
            claim = await store.claim([mark], now_ms=now, expired_ms=0, threads=_none)
            await claim.commit([mark])
        assert len(store) == 3
        again = await store.claim(numbered, now_ms=9, expired_ms=0, threads=_none)
        assert (again.done, again.claimed) == (frozenset(numbered[2:]), frozenset(numbered[:2]))
        assert await store.clean_up(expired_ms=4, limit=1, threads=_none) == 1
        assert await store.clean_up(expired_ms=4, limit=9, threads=_none) == 1
        assert len(store) == 1

    asyncio.run(marks())
    with pytest.raises(ValueError, match="expected at least 1"):
        MemoryMarks(limit=0)
