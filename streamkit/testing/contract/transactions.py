"""Cases: messages that count only if a local transaction does."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated

import pytest

from streamkit.application import StreamApplication
from streamkit.binder.capabilities import Capability
from streamkit.config.origin import Scalar
from streamkit.errors import ConfigurationError, MessagingError
from streamkit.listeners.listener import Header
from streamkit.messaging.headers import DELAY, TRANSACTION_ID, TRANSACTIONAL_ARG
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import TransactionState
from streamkit.testing.contract.scenario import PREFIX, Recorder, Scenario, case, refused

COMMIT, ROLLBACK, UNKNOWN = TransactionState


class Till:
    """An application with a transactional output, and a checker that says what it is told to."""

    def __init__(self, s: Scenario, topic: str, group: str) -> None:
        self.says: TransactionState | Exception = UNKNOWN
        self.asked: Recorder[tuple[str, str]] = s.recorder(f"checks of {group}")
        self.app = s.app(transactional(s, topic, group))
        self.app.transaction_listener(group)(self.check)
        self.channel = self.app.channel("output")

    async def check(self, text: str, transaction: Annotated[str, Header(TRANSACTION_ID)]) -> TransactionState:
        self.asked.add((text, transaction))
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


def transactional(s: Scenario, topic: str, group: str) -> Mapping[str, Scalar]:
    """Settings of an output whose messages are sent within transactions of a producer group."""
    return {
        f"{PREFIX}.output-bindings": "output",
        f"{PREFIX}.bindings.output.destination": topic,
        **s.environment.producer_properties("output", {"transactional": True, "group": group}),
    }


async def opened(s: Scenario, topic: str) -> Till:
    """A till that runs."""
    till = Till(s, topic, s.name("till"))
    await s.start(till.app)
    return till


def some_checks(s: Scenario, number: int = 1) -> float:
    """Seconds in which there must have been that many checks, and a few more."""
    return (number + 3) * s.environment.transaction_check_interval + s.environment.patience


class TransactionCases:
    """Blocks, listeners, checks, and what nobody can tell about."""

    @case
    async def test_a_binder_without_transactions_refuses_the_setting(self, s: Scenario) -> None:
        """With the capability it begins; without, the start fails."""
        if s.lacks(Capability.TRANSACTION):
            till = Till(s, s.name("topic"), s.name("till"))
            await refused(s.start(till.app))

    @case
    async def test_a_block_that_ends_commits(self, s: Scenario) -> None:
        """Nobody sees the message before; then its headers are as in any other message."""
        if s.lacks(Capability.TRANSACTION):
            return
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        till = await opened(s, topic)
        async with till.channel.transaction(Message("paid", {"colour": "red"})) as tx:
            await s.nothing_more()
            assert not received.items
        (message,) = await received.settled(1)
        assert (message.payload, message.headers["colour"]) == (b"paid", "red")
        assert message.headers[TRANSACTION_ID] == tx.transaction_id

    @case
    async def test_an_exception_rolls_back(self, s: Scenario) -> None:
        """It goes on to the caller; so does the decision of the block itself."""
        if s.lacks(Capability.TRANSACTION):
            return
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        till = await opened(s, topic)
        with pytest.raises(ValueError, match="no money"):
            async with till.channel.transaction(Message("unpaid")):
                raise ValueError("no money")
        async with till.channel.transaction(Message("withdrawn")) as tx:
            tx.rollback()
        async with till.channel.transaction(Message("paid")):
            pass
        (message,) = await received.settled(1)
        assert message.payload == b"paid"
        asked = list(till.asked.items)  # nothing, unless sending took as long as a checker is waited for
        await asyncio.sleep(2 * s.environment.transaction_check_interval)
        assert till.asked.items == asked

    @case
    async def test_what_is_unknown_is_asked_for_until_it_is_known(self, s: Scenario) -> None:
        """The checker gets payload and headers as a listener does; an exception of it says UNKNOWN."""
        if s.lacks(Capability.TRANSACTION):
            return
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        till = await opened(s, topic)
        till.says = ConnectionError("the database is away")
        transaction = till.channel.transaction(Message("perhaps"))
        with suppress(ValueError):
            async with transaction as tx:
                tx.unknown()
                raise ValueError("the answer of the database was lost")
        await till.asked.wait(1, within=some_checks(s))
        till.says = COMMIT
        await received.wait(1, within=some_checks(s))
        (message,) = await received.settled(1)
        assert message.payload == b"perhaps"
        assert set(till.asked.items) == {("perhaps", transaction.transaction_id)}
        assert len(till.asked.items) >= 2

    @case
    async def test_a_cancelled_block_is_unknown(self, s: Scenario) -> None:
        """It may have been in the middle of a commit; the checker says that it was not."""
        if s.lacks(Capability.TRANSACTION):
            return
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        till = await opened(s, topic)
        till.says = ROLLBACK
        began = asyncio.Event()

        async def hang() -> None:
            async with till.channel.transaction(Message("cut off")):
                began.set()
                await asyncio.Event().wait()

        hanging = asyncio.ensure_future(hang())
        await began.wait()
        hanging.cancel()
        await till.asked.wait(1, within=some_checks(s))
        await s.nothing_more()
        assert not received.items

    @case
    async def test_a_crashed_member_is_replaced_by_another_one(self, s: Scenario) -> None:
        """It never ended its transaction; a later member of its group is asked, which has sent nothing."""
        if s.lacks(Capability.TRANSACTION):
            return
        topic, group = await s.topic(), s.name("till")
        received = await s.record(topic, s.name("group"))
        crashes = Till(s, topic, group)
        await crashes.app.start(watch_loop=False)
        block = crashes.channel.transaction(Message("half"))
        await block.__aenter__()
        await crashes.app.stop()
        later = Till(s, topic, group)
        later.says = COMMIT
        await s.start(later.app)
        await received.wait(1, within=some_checks(s))
        (message,) = await received.settled(1)
        assert message.payload == b"half"
        assert later.asked.items[0] == ("half", block.transaction_id)

    @case
    async def test_what_nobody_can_tell_is_put_aside(self, s: Scenario) -> None:
        """After so many checks, where people can see it."""
        if s.lacks(Capability.TRANSACTION) or s.environment.put_aside is None:
            return
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        till = await opened(s, topic)
        async with till.channel.transaction(Message(s.name("lost"))) as tx:
            tx.unknown()
        checks = s.environment.transaction_checks
        await till.asked.wait(checks, within=some_checks(s, checks))
        await asyncio.sleep(2 * s.environment.transaction_check_interval)
        aside = await s.record(s.environment.put_aside, s.name("reader"), start="earliest")
        async with asyncio.timeout(s.environment.patience):
            while not any(message.payload == s.name("lost").encode() for message in aside.items):
                await aside.wait(len(aside.items) + 1)
        assert checks <= len(till.asked.items) <= checks + 1
        assert not received.items

    @case
    async def test_a_listener_executes_what_is_sent_without_a_block(self, s: Scenario) -> None:
        """It gets the payload as it was sent, and the argument that a header holds."""
        if s.lacks(Capability.TRANSACTION):
            return
        topic, group = await s.topic(), s.name("till")
        received = await s.record(topic, s.name("group"))
        executed: list[tuple[object, object]] = []
        app = s.app(transactional(s, topic, group))

        @app.transaction_listener(group)
        class Orders:
            def execute_local_transaction(
                self, message: Message[object], argument: object
            ) -> TransactionState:
                executed.append((message.payload, argument))
                if argument == "fail":
                    raise ValueError("no money")
                return COMMIT if argument == "commit" else ROLLBACK

            def check_local_transaction(self, message: Message[bytes]) -> TransactionState:
                return ROLLBACK

        await s.start(app)
        for argument in ("rollback", "commit"):
            await app.channel("output").asend(Message({"order": 7}, {TRANSACTIONAL_ARG: argument}))
        with pytest.raises(MessagingError):
            await app.channel("output").asend(Message({"order": 8}, {TRANSACTIONAL_ARG: "fail"}))
        (message,) = await received.settled(1)
        assert message.payload == b'{"order":7}'
        assert TRANSACTIONAL_ARG not in message.headers
        assert [argument for _, argument in executed] == ["rollback", "commit", "fail"]
        assert executed[0][0] == {"order": 7}

    @case
    async def test_a_transactional_binding_needs_somebody_to_ask(self, s: Scenario) -> None:
        """Without a listener of its group the start fails, with the setting to blame."""
        app = s.app(transactional(s, s.name("topic"), s.name("nobody")))
        with pytest.raises(
            ConfigurationError, match="nobody answers for the transactions of producer group"
        ) as caught:
            await app.start(watch_loop=False)
        assert "transactional" in str(caught.value.key)

    @case
    async def test_plain_sends_and_transactions_do_not_mix(self, s: Scenario) -> None:
        """A block needs a transactional binding; a transactional binding a block, or a listener that executes."""
        if s.lacks(Capability.TRANSACTION):
            return
        topic = await s.topic()
        till = await opened(s, topic)
        with pytest.raises(MessagingError, match=r"(?s)is transactional: send to it with"):
            await till.channel.asend(Message("x"))
        with pytest.raises(MessagingError, match="cannot be delayed"):
            async with till.channel.transaction(Message("x", {DELAY: s.environment.delay_levels[0]})):
                raise AssertionError("it must not begin")
        plain = await plain_sender(s, topic)
        with pytest.raises(MessagingError, match="is not transactional"):
            async with plain.channel("output").transaction(Message("x")):
                raise AssertionError("it must not begin")


async def plain_sender(s: Scenario, topic: str) -> StreamApplication:
    """An application with an output that is not transactional."""
    return await s.start(
        s.app({f"{PREFIX}.output-bindings": "output", f"{PREFIX}.bindings.output.destination": topic})
    )
