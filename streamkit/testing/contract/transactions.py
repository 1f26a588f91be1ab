"""Cases: messages that are delivered only if a local transaction commits."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated

import pytest

from streamkit.binder.capabilities import Capability
from streamkit.config.origin import Scalar
from streamkit.errors import ConfigurationError, MessagingError
from streamkit.listeners.listener import Header
from streamkit.messaging.headers import DELAY, TRANSACTION_ID, TRANSACTIONAL_ARG
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import TransactionState
from streamkit.testing.contract.scenario import PREFIX, Recorder, Scenario, case, needs, refused

COMMIT, ROLLBACK, UNKNOWN = TransactionState


class TransactionalSender:
    """An application with a transactional output whose transaction checker answers `answer`."""

    def __init__(self, s: Scenario, topic: str, group: str) -> None:
        self.answer: TransactionState | Exception = UNKNOWN
        self.checks: Recorder[tuple[str, str]] = s.recorder(f"checks of {group}")
        self.app = s.app(transactional(s, topic, group))
        self.app.transaction_listener(group)(self.check)
        self.channel = self.app.channel("output")

    async def check(self, text: str, transaction: Annotated[str, Header(TRANSACTION_ID)]) -> TransactionState:
        self.checks.add((text, transaction))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def transactional(s: Scenario, topic: str, group: str) -> Mapping[str, Scalar]:
    """Return the settings of a transactional output of a producer group."""
    return {
        f"{PREFIX}.output-bindings": "output",
        f"{PREFIX}.bindings.output.destination": topic,
        **s.environment.producer_properties("output", {"transactional": True, "group": group}),
    }


async def started(s: Scenario, topic: str) -> TransactionalSender:
    """Return a started application with a transactional output."""
    sender = TransactionalSender(s, topic, s.name("producers"))
    await s.start(sender.app)
    return sender


def time_for_checks(s: Scenario, number: int = 1) -> float:
    """Return the seconds within which a broker must have made that many checks."""
    return (number + 3) * s.environment.transaction_check_interval + s.environment.patience


class TransactionCases:
    """Transactions: blocks, listeners, checks."""

    @case
    async def test_a_binder_without_transactions_refuses_the_setting(self, s: Scenario) -> None:
        """If the binder lacks the capability, an application with a transactional output does not start."""
        if s.lacks(Capability.TRANSACTION):
            sender = TransactionalSender(s, s.name("topic"), s.name("producers"))
            await refused(s.start(sender.app))

    @case
    @needs(Capability.TRANSACTION)
    async def test_a_transaction_block_commits_at_its_end(self, s: Scenario) -> None:
        """The message is delivered after the block, with its headers and the transaction's id."""
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        sender = await started(s, topic)
        async with sender.channel.transaction(Message("paid", {"colour": "red"})) as tx:
            await s.nothing_more()
            assert not received.items
        (message,) = await received.settled(1)
        assert (message.payload, message.headers["colour"]) == (b"paid", "red")
        assert message.headers[TRANSACTION_ID] == tx.transaction_id

    @case
    @needs(Capability.TRANSACTION)
    async def test_an_exception_rolls_the_transaction_back(self, s: Scenario) -> None:
        """The caller receives the exception; `tx.rollback()` rolls back too. Neither message is delivered."""
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        sender = await started(s, topic)
        with pytest.raises(ValueError, match="no money"):
            async with sender.channel.transaction(Message("unpaid")):
                raise ValueError("no money")
        async with sender.channel.transaction(Message("withdrawn")) as tx:
            tx.rollback()
        async with sender.channel.transaction(Message("paid")):
            pass
        (message,) = await received.settled(1)
        assert message.payload == b"paid"
        checked = list(sender.checks.items)  # empty, unless sending took longer than the first check
        await asyncio.sleep(2 * s.environment.transaction_check_interval)
        assert sender.checks.items == checked

    @case
    @needs(Capability.TRANSACTION)
    async def test_an_unknown_transaction_is_checked_until_it_is_decided(self, s: Scenario) -> None:
        """The checker receives payload and headers as a listener does; an exception in it counts as UNKNOWN."""
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        sender = await started(s, topic)
        sender.answer = ConnectionError("the database is away")
        transaction = sender.channel.transaction(Message("perhaps"))
        with suppress(ValueError):
            async with transaction as tx:
                tx.unknown()
                raise ValueError("the answer of the database was lost")
        await sender.checks.wait(1, within=time_for_checks(s))
        sender.answer = COMMIT
        await received.wait(1, within=time_for_checks(s))
        (message,) = await received.settled(1)
        assert message.payload == b"perhaps"
        assert set(sender.checks.items) == {("perhaps", transaction.transaction_id)}
        assert len(sender.checks.items) >= 2

    @case
    @needs(Capability.TRANSACTION)
    async def test_a_cancelled_block_leaves_the_transaction_unknown(self, s: Scenario) -> None:
        """The block may have been cancelled during a commit, so the checker decides."""
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        sender = await started(s, topic)
        sender.answer = ROLLBACK
        began = asyncio.Event()

        async def hang() -> None:
            async with sender.channel.transaction(Message("cut off")):
                began.set()
                await asyncio.Event().wait()

        hanging = asyncio.ensure_future(hang())
        await began.wait()
        hanging.cancel()
        await sender.checks.wait(1, within=time_for_checks(s))
        await s.nothing_more()
        assert not received.items

    @case
    async def test_another_member_of_the_group_checks_the_transactions_of_a_crashed_one(self, s: Scenario) -> None:
        """A later member of the producer group is asked about a transaction that it has not sent."""
        if s.lacks(Capability.TRANSACTION):
            return
        topic, group = await s.topic(), s.name("producers")
        received = await s.record(topic, s.name("group"))
        crashes = TransactionalSender(s, topic, group)
        await crashes.app.start(watch_loop=False)
        block = crashes.channel.transaction(Message("half"))
        await block.__aenter__()
        await crashes.app.stop()
        later = TransactionalSender(s, topic, group)
        later.answer = COMMIT
        await s.start(later.app)
        await received.wait(1, within=time_for_checks(s))
        (message,) = await received.settled(1)
        assert message.payload == b"half"
        assert later.checks.items[0] == ("half", block.transaction_id)

    @case
    async def test_a_transaction_that_stays_unknown_is_put_aside(self, s: Scenario) -> None:
        """After `transaction_checks` checks the message goes to the destination `put_aside` of the environment."""
        if s.lacks(Capability.TRANSACTION) or s.environment.put_aside is None:
            return
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        sender = await started(s, topic)
        async with sender.channel.transaction(Message(s.name("lost"))) as tx:
            tx.unknown()
        checks = s.environment.transaction_checks
        await sender.checks.wait(checks, within=time_for_checks(s, checks))
        await asyncio.sleep(2 * s.environment.transaction_check_interval)
        aside = await s.record(s.environment.put_aside, s.name("reader"), start="earliest")
        async with asyncio.timeout(s.environment.patience):
            while not any(message.payload == s.name("lost").encode() for message in aside.items):
                await aside.wait(len(aside.items) + 1)
        assert checks <= len(sender.checks.items) <= checks + 1
        assert not received.items

    @case
    @needs(Capability.TRANSACTION)
    async def test_a_transaction_listener_executes_the_transaction_of_a_plain_send(self, s: Scenario) -> None:
        """The listener receives the payload that was sent, and the header `TRANSACTIONAL_ARG` as its argument."""
        topic, group = await s.topic(), s.name("producers")
        received = await s.record(topic, s.name("group"))
        executed: list[tuple[object, object]] = []
        app = s.app(transactional(s, topic, group))

        @app.transaction_listener(group)
        class Orders:
            def execute_local_transaction(self, message: Message[object], argument: object) -> TransactionState:
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
    async def test_a_transactional_binding_needs_a_transaction_listener(self, s: Scenario) -> None:
        """Without a transaction listener of its group the start fails, and the error names the setting."""
        app = s.app(transactional(s, s.name("topic"), s.name("nobody")))
        with pytest.raises(ConfigurationError, match="there is no transaction listener for producer group") as caught:
            await app.start(watch_loop=False)
        assert "transactional" in str(caught.value.key)

    @case
    @needs(Capability.TRANSACTION)
    async def test_plain_sends_and_transactions_need_bindings_of_their_own(self, s: Scenario) -> None:
        """A plain send to a transactional binding fails, and so does a block on a binding that is not transactional."""
        topic = await s.topic()
        sender = await started(s, topic)
        with pytest.raises(MessagingError, match=r"(?s)is transactional: send to it with"):
            await sender.channel.asend(Message("x"))
        with pytest.raises(MessagingError, match="cannot be delayed"):
            async with sender.channel.transaction(Message("x", {DELAY: s.environment.delay_levels[0]})):
                raise AssertionError("it must not begin")
        plain = await s.start(s.producer(topic))
        with pytest.raises(MessagingError, match="make the binding transactional"):
            async with plain.channel("output").transaction(Message("x")):
                raise AssertionError("it must not begin")
