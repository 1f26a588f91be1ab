"""Local transactions in applications: blocks in blocking and async code, and every form of listener."""

import asyncio
import textwrap
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from streamkit import Message, MessageHeaders, StreamApplication, TransactionState, transaction_listener
from streamkit.binder.attempts import unwrapped
from streamkit.config.origin import Scalar
from streamkit.errors import BlockingSendError, ConfigurationError, MessageDeliveryError, MessagingError
from streamkit.messaging import DirectChannel
from streamkit.messaging.interceptor import ChannelInterceptor

BINDING = "spring.cloud.stream.rocketmq.bindings.out.producer"
SETTINGS: dict[str, Scalar] = {
    "spring.cloud.stream.default-binder": "inmemory",
    "spring.cloud.stream.output-bindings": "out",
    "spring.cloud.stream.bindings.out.destination": "orders",
    "spring.cloud.stream.bindings.in.destination": "orders",
    "spring.cloud.stream.bindings.in.group": "g",
    f"{BINDING}.transactional": True,
    f"{BINDING}.group": "till",
}


@dataclass
class Order:
    number: int


def application(*sources: object, **more: Scalar) -> StreamApplication:
    settings = SETTINGS | {f"{BINDING}.{name.replace('_', '-')}": value for name, value in more.items()}
    return StreamApplication(*sources, config_location="optional:/none", properties=settings)


def commit() -> TransactionState:
    return TransactionState.COMMIT


def heard(app: StreamApplication) -> list[dict[str, int]]:
    """Return what the application's own input received."""
    payloads: list[dict[str, int]] = []

    @app.stream_listener("in")
    def listen(payload: dict[str, int]) -> None:
        payloads.append(payload)

    return payloads


@transaction_listener("till")
class Tills:
    """A listener class as in the documentation."""

    checked: ClassVar[list[object]] = []

    def execute_local_transaction(self, message: Message[Order], argument: object) -> TransactionState:
        states = {13: TransactionState.UNKNOWN, 14: TransactionState.ROLLBACK}
        return states.get(message.payload.number, TransactionState.COMMIT)

    async def check_local_transaction(self, message: Message[Order]) -> TransactionState:
        self.checked.append(message.payload)
        return TransactionState.ROLLBACK


def test_blocking_code_uses_a_plain_with_block() -> None:
    """In a thread that may block; on the application's loop it is an error that names the alternative."""
    app = application()
    app.transaction_listener("till")(commit)
    payloads = heard(app)
    with app.test() as test:
        channel = app.channel("out")
        with pytest.raises(ZeroDivisionError), channel.transaction(Message({"number": 1})):
            raise ZeroDivisionError
        with channel.transaction(Message({"number": 2}, {"TRANSACTION_ID": "t2"})) as tx:
            assert tx.transaction_id == "t2"
        test.settle()
        assert payloads == [{"number": 2}]

        async def wrong() -> None:
            with channel.transaction(Message({"number": 3})):
                raise AssertionError("it must not begin")

        with pytest.raises(BlockingSendError, match="would block the loop"):
            test.run(wrong())


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_block_interrupted_by_the_end_of_its_process_is_unknown(end: type[BaseException]) -> None:
    """It may have been interrupted in the middle of the commit, so the checker is asked."""
    app = application()
    app.transaction_listener("till")(commit)
    payloads = heard(app)
    with app.test() as test:
        with pytest.raises(end), app.channel("out").transaction(Message({"number": 1})):
            raise end
        test.advance(seconds=70)
        assert payloads == [{"number": 1}]


def test_coroutine_that_a_check_returns_is_awaited() -> None:
    """A `def` decorator around an `async def` returns one."""

    async def committed() -> TransactionState:
        await asyncio.sleep(0)
        return TransactionState.COMMIT

    def check() -> Coroutine[None, None, TransactionState]:
        return committed()

    app = application()
    app.transaction_listener("till")(check)
    payloads = heard(app)
    with app.test() as test:
        with pytest.raises(SystemExit), app.channel("out").transaction(Message({"number": 1})):
            raise SystemExit
        test.advance(seconds=70)
        assert payloads == [{"number": 1}]


def test_listener_class_of_a_module_is_instantiated() -> None:
    """With both methods; its checker is asked only about unknown transactions, with the payload."""
    Tills.checked.clear()
    app = application(Tills)
    payloads = heard(app)
    with app.test() as test:
        for number in (7, 13, 14):
            app.channel("out").send(Message(Order(number)))
        test.advance(seconds=70)
        assert payloads == [{"number": 7}]
        assert Tills.checked == [Order(13)]
        test.advance(seconds=200)
        assert Tills.checked == [Order(13)]


def test_listener_error_reaches_the_sender() -> None:
    """The transaction stays open and is checked later; a checker's error is logged."""
    app, states = application(), [TransactionState.COMMIT]

    class Broken:
        def execute_local_transaction(self, message: Message[Order], argument: object) -> TransactionState:
            raise LookupError("no such till")

        def check_local_transaction(self, message: Message[Order]) -> TransactionState:
            return states.pop()

    app.transaction_listener("till")(Broken())
    payloads = heard(app)
    with app.test() as test:
        with pytest.raises(MessagingError) as caught:
            app.channel("out").send(Message(Order(7)))
        assert isinstance(unwrapped(caught.value), LookupError)
        assert payloads == []
        test.advance(seconds=70)
        assert (payloads, states) == ([{"number": 7}], [])


def test_checker_arguments_are_injected_like_a_listeners() -> None:
    """Payload by annotation, headers; `def` runs on a thread."""
    app, asked = application(), list[object]()

    @app.transaction_listener("till")
    def check(order: Order, headers: MessageHeaders) -> TransactionState:
        asked.append((order, headers["TRANSACTION_ID"]))
        return TransactionState.COMMIT

    payloads = heard(app)
    with app.test() as test:
        with app.channel("out").transaction(Message(Order(7), {"TRANSACTION_ID": "t7"})) as tx:
            tx.unknown()
        assert payloads == []
        test.advance(seconds=70)
        assert payloads == [{"number": 7}]
    assert asked == [(Order(7), "t7")]


def test_settings_may_name_the_listener() -> None:
    """In the second generation: `producer-type=Trans` and `transaction-listener`."""
    app = application(transactional=False, producer_type="Trans", transaction_listener="tills")
    app.register("tills", Tills())
    payloads = heard(app)
    with app.test() as test:
        app.channel("out").send(Message(Order(7)))
        test.settle()
        assert payloads == [{"number": 7}]


def test_missing_transaction_listener_is_reported_with_the_settings_line(tmp_path: Path) -> None:
    """And with the nearest group that has a listener."""
    file = tmp_path / "application.properties"
    file.write_text(
        textwrap.dedent(f"""\
            spring.cloud.stream.default-binder=inmemory
            spring.cloud.stream.output-bindings=out
            {BINDING}.group=til
            {BINDING}.transactional=true
            """)
    )
    app = StreamApplication(config_location=file)
    app.transaction_listener("till")(commit)
    with (
        pytest.raises(ConfigurationError, match=r"producer group 'til'.*Did you mean 'till'") as caught,
        app.test(),
    ):
        pass
    assert "application.properties:4" in str(caught.value)


def test_group_has_one_transaction_listener() -> None:
    """Two are refused."""
    app = application(Tills)
    app.transaction_listener("till")(commit)
    with pytest.raises(ConfigurationError, match=r"two transaction listeners.*'till'"), app.test():
        pass


def test_object_that_is_no_listener_is_refused() -> None:
    """Neither a function nor an object with the method."""
    app = application(transaction_listener="tills")
    app.register("tills", object())
    with pytest.raises(ConfigurationError, match="is not a transaction listener"), app.test():
        pass


def test_checker_without_a_result_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """Only a `TransactionState` is an answer."""
    app = application()
    app.transaction_listener("till")(lambda: None)
    with app.test() as test:
        with app.channel("out").transaction(Message("x")) as tx:
            tx.unknown()
        test.advance(seconds=70)
        assert "returned None: expected a TransactionState" in caplog.text


def test_running_transaction_is_not_checked() -> None:
    """The checker would not see the uncommitted data and roll it back."""
    app, asked = application(), list[object]()

    @app.transaction_listener("till")
    def check(order: Order) -> TransactionState:
        asked.append(order)
        return TransactionState.ROLLBACK

    payloads = heard(app)
    with app.test() as test:
        with app.channel("out").transaction(Message(Order(7))):
            test.advance(seconds=200)
        test.settle()
        assert (asked, payloads) == ([], [{"number": 7}])


def test_channel_that_is_no_output_starts_no_transaction() -> None:
    """Nor does one whose interceptor stops the message; the block is not entered."""

    class Stop(ChannelInterceptor):
        def pre_send(self, message: Message[object], channel: object) -> Message[object] | None:
            return None

    channel = DirectChannel("local")
    channel.subscribe(lambda message: None)
    app = application()
    app.transaction_listener("till")(commit)

    async def begin(target: DirectChannel) -> None:
        async with target.transaction(Message("x")):
            raise AssertionError("it must not begin")

    with app.test() as test:
        with pytest.raises(MessageDeliveryError, match="no output binding of a binder"):
            test.run(begin(channel))
        channel.add_interceptor(Stop())
        with pytest.raises(MessageDeliveryError, match="an interceptor stopped the message"):
            test.run(begin(channel))
