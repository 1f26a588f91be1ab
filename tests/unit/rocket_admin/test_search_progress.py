"""A search in many topics says what it does, how far it is, and ends at the topic that has the message."""

import asyncio

import pytest

from rocket_admin.commands import message
from rocket_admin.messages import search_id
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings, Producer, ProducerSettings
from rocket_remoting import Message
from tests.unit.rocket_admin.terminal import Terminal


def test_search_in_many_topics_is_announced(
    broker: ThreadedBroker, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard error, for people; without a word if there are few topics, or one is named."""
    monkeypatch.setattr(message, "MANY_TOPICS", 30)
    settings = ClientSettings(name_servers=broker.name_server)

    async def prepare() -> str:
        async with Admin(settings) as admin, Producer("p", ProducerSettings(name_servers=broker.name_server)) as shop:
            for number in range(40):
                await admin.create_topic(f"t{number:02}", 1)
            return (await shop.send(Message("t35", b"tea"))).msg_id

    found = asyncio.run(prepare())
    shown = terminal.run(message.message, "show", found)
    assert shown.exit_code == 0
    assert "topics for the message, until one has it; --topic names it." in shown.stderr
    assert "32 of " in shown.stderr
    assert "Searching" not in terminal.run(message.message, "show", found, "--topic", "t35").stderr
    assert "64 of" not in terminal.run(message.message, "show", "0" * 32).stderr


def test_search_in_all_topics_goes_on_in_steps(broker: ThreadedBroker) -> None:
    """Each searches some topics, however little time it has; the last one is that which finds the message."""

    async def search() -> None:
        async with (
            Admin(ClientSettings(name_servers=broker.name_server)) as admin,
            Producer("p", ProducerSettings(name_servers=broker.name_server)) as shop,
        ):
            for number in range(40):
                await admin.create_topic(f"t{number:02}", 1)
            sent = await shop.send(Message("t35", b"tea"))
            step = await search_id(admin, sent.msg_id, "t00", seconds=0)
            steps = [step.next]
            while step.next is not None:
                assert not step.messages
                step = await search_id(admin, sent.msg_id, step.next, seconds=0)
                steps.append(step.next)
            assert steps == ["t16", "t32", None]
            assert [bytes(each.body) for each in step.messages] == [b"tea"]
            assert step.searched == step.topics
            last = await search_id(admin, "0" * 32, "t39")
            assert (last.messages, last.searched, last.next) == ((), last.topics, None)

    asyncio.run(search())
