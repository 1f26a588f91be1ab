"""Dead letters on the bundled broker in virtual time: listed, grouped, sent back, dropped."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

import pytest

from rocket_admin.conditions import conditions_of
from rocket_admin.dead_letters import (
    DeadLetter,
    DeadLetterGroup,
    by_cause,
    dead_letter_groups,
    dead_letters,
    drop_dead_letters,
    groups_with_dead_letter_topic,
)
from rocket_admin.replay_account import AccountError, ReplayAccount
from rocket_admin.replays import REPLAYED_LETTER, Replay, ReplayedLetter, ReplayError, replay_dead_letters
from rocket_admin.times import moment
from rocket_client import Admin, Reject
from rocket_remoting import Message, MessageExt
from tests.end_to_end.client_stage import ClientStage, RecordingListener, play


def bury(scene: Callable[[ClientStage, Admin], Awaitable[None]], count: int = 4) -> None:
    """Run a scene with dead letters 0, 1, … of group `kitchen`, which were sent to queue 1 of `orders`."""

    def refuse(message: MessageExt) -> Reject:
        number = int(message.body)
        return Reject(ValueError(f"no table {number}") if number % 2 else KeyError("dish"))

    async def with_letters(stage: ClientStage) -> None:
        heard, letters = RecordingListener(refuse), RecordingListener()
        async with stage.concurrent(heard, consume_message_batch_max_size=1), stage.producer() as producer:
            queue = (await producer.publish_queues("orders"))[1]
            for number in range(count):
                properties = {"colour": "red" if number < 2 else "blue"}
                await producer.send(
                    Message("orders", str(number).encode(), keys=f"o-{number}", tags="hot", properties=properties),
                    queue=queue,
                )
                await heard.count(number + 1)
            async with stage.concurrent(letters, "gravediggers", topic="%DLQ%kitchen"):
                await letters.count(count)
        async with stage.admin() as admin:
            await scene(stage, admin)

    play(with_letters, queues=2)


async def groups_with_letters(admin: Admin) -> list[DeadLetterGroup]:
    """Return the groups that have dead letters."""
    return [group async for group in dead_letter_groups(admin, await groups_with_dead_letter_topic(admin))]


async def bodies(admin: Admin, *conditions: str, with_dropped: bool = False) -> list[bytes]:
    """Return the bodies of the dead letters."""
    found = dead_letters(admin, "kitchen", conditions=conditions_of(conditions), with_dropped=with_dropped)
    return [bytes(letter.body) async for letter in found]


async def replayed(admin: Admin, replay: Replay, account: ReplayAccount | None = None) -> list[ReplayedLetter]:
    """Replay to the end."""
    return [letter async for letter in replay_dead_letters(admin, replay, account)]


async def received(stage: ClientStage, topic: str, group: str, count: int) -> Sequence[MessageExt]:
    """Return a topic's messages."""
    heard = RecordingListener()
    async with stage.concurrent(heard, group, topic=topic):
        await heard.count(count)
        await asyncio.sleep(30)
    return heard.messages


def test_dead_letters_tell_their_origin_and_cause() -> None:
    """The topic, queue, offset, id and group; causes with other numbers in their text are the same."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        (group,) = await groups_with_letters(admin)
        assert (group.group, group.count, group.dropped) == ("kitchen", 4, 0)
        assert group.newest_at is not None
        found = [letter async for letter in dead_letters(admin, "kitchen")]
        letter = DeadLetter.of(found[3])
        assert (letter.group, letter.origin_topic, letter.origin_queue, letter.origin_offset) == (
            "kitchen",
            "orders",
            1,
            3,
        )
        assert letter.cause is not None
        assert (letter.cause.type, letter.cause.message) == ("builtins.ValueError", "no table 3")
        assert letter.origin_message_id is not None
        assert (await admin.view_message(letter.origin_message_id)).body == b"3"
        causes = by_cause(found)
        assert [(each.type, each.text, each.count) for each in causes] == [
            ("builtins.KeyError", "'dish'", 2),
            ("builtins.ValueError", "no table 1", 2),
        ]
        assert causes[0].origin_topics == ("orders",)
        assert await bodies(admin, "colour=red", "body~1") == [b"1"]

    bury(scene)


def test_replay_sends_new_messages_to_the_old_queue() -> None:
    """With keys, tags and user properties, without counters and causes; what is sent is dropped."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        done = await replayed(admin, Replay(group="kitchen"))
        assert [(each.topic, each.offset) for each in done] == [("orders", number) for number in range(4)]
        again = (await received(stage, "orders", "readers", 8))[4:]
        assert [message.body for message in again] == [b"0", b"1", b"2", b"3"]
        assert {message.queue_id for message in again} == {1}
        last = again[-1]
        assert (last.keys, last.tags, last.properties["colour"], last.reconsume_times) == ("o-3", "hot", "blue", 0)
        assert last.properties[REPLAYED_LETTER] == done[-1].letter
        assert last.unique_key == done[-1].message_id
        assert not [name for name in last.properties if name.startswith(("FAILURE_", "ORIGIN_", "RETRY_"))]
        assert await bodies(admin) == []
        assert await bodies(admin, with_dropped=True) == [b"0", b"1", b"2", b"3"]
        (group,) = await groups_with_letters(admin)
        assert (group.count, group.dropped) == (0, 4)

    bury(scene)


def test_replay_of_some_drops_only_those_at_the_beginning() -> None:
    """The others stay where they are; a dry run changes nothing."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        dry = await replayed(admin, Replay(group="kitchen", conditions=conditions_of(["colour=red"]), dry_run=True))
        assert [(each.topic, each.message_id) for each in dry] == [("orders", None)] * 2
        assert await bodies(admin) == [b"0", b"1", b"2", b"3"]
        await replayed(admin, Replay(group="kitchen", conditions=conditions_of(["body=2"])))
        assert await bodies(admin) == [b"0", b"1", b"2", b"3"]
        await replayed(admin, Replay(group="kitchen", conditions=conditions_of(["colour=red"])))
        assert await bodies(admin) == [b"2", b"3"]
        assert len(await replayed(admin, Replay(group="kitchen", limit=1))) == 1
        assert await bodies(admin) == [b"3"]

    bury(scene)


def test_replay_goes_to_another_topic_or_to_the_group_alone() -> None:
    """The group alone receives it as a message of the topic, with counters of its own."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        with pytest.raises(ReplayError, match="topic 'elsewhere' does not exist"):
            await replayed(admin, Replay(group="kitchen", to="elsewhere"))
        await stage.topic("elsewhere", queues=1)
        await replayed(admin, Replay(group="kitchen", to="elsewhere", limit=1))
        assert [message.body for message in await received(stage, "elsewhere", "readers", 1)] == [b"0"]
        await replayed(admin, Replay(group="kitchen", to_group_alone=True, limit=1))
        again = (await received(stage, "orders", "kitchen", 1))[0]
        assert (again.topic, again.body, again.reconsume_times) == ("orders", b"1", 0)
        assert len(await received(stage, "orders", "others", 4)) == 4

    bury(scene)


def test_a_replay_ends_when_its_time_is_over() -> None:
    """The letters that it has sent are dropped, and the next replay sends the others."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        assert len(await replayed(admin, Replay(group="kitchen", rate=1, within=1.5))) == 3
        assert await bodies(admin) == [b"3"]
        assert len(await replayed(admin, Replay(group="kitchen", within=1.5))) == 1

    bury(scene)


def test_rate_limits_a_replay() -> None:
    """Letters are sent at even intervals."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await replayed(admin, Replay(group="kitchen", rate=0.1))
        assert 29 < loop.time() - begun < 31

    bury(scene)


def test_interrupted_replay_goes_on_after_its_account(tmp_path: Path) -> None:
    """Letters that the account names are not sent again, also if the last line was cut short."""
    path = tmp_path / "account.jsonl"

    async def scene(stage: ClientStage, admin: Admin) -> None:
        replay = Replay(group="kitchen")
        with ReplayAccount(path, "kitchen") as account:
            with pytest.raises(AccountError, match="another replay is using this account"):
                ReplayAccount(path, "kitchen").__enter__()
            async with aclosing(replay_dead_letters(admin, replay, account)) as letters:
                async for letter in letters:
                    if letter.offset == 1:
                        break
        assert await bodies(admin) == [b"0", b"1", b"2", b"3"]
        with path.open("ab") as file:
            file.write(b'{"letter": "7F0000')
        with ReplayAccount(path, "kitchen") as account:
            assert len(account) == 2
            assert [each.offset for each in await replayed(admin, replay, account)] == [2, 3]
        assert await bodies(admin) == []
        assert len(await received(stage, "orders", "readers", 8)) == 8
        heading, *lines = map(json.loads, path.read_text().splitlines())
        assert heading["group"] == "kitchen"
        assert [(each["queue"], each["offset"], each["topic"]) for each in lines] == [
            ("broker-a:0", number, "orders") for number in range(4)
        ]

    bury(scene)


@pytest.mark.parametrize(
    "text", ["notes\n", "notes", '{"a": 1}\n', '{"account": "dead letters", "group": "x"}\n', "[1]\n"]
)
def test_other_files_are_no_accounts(tmp_path: Path, text: str) -> None:
    """They are not written to."""
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(AccountError, match=r"notes\.txt"):
        ReplayAccount(path, "kitchen").__enter__()
    assert path.read_text() == text


def test_dropped_letters_are_not_listed() -> None:
    """All, or those before a time; they are still stored."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        times = [letter.store_timestamp async for letter in dead_letters(admin, "kitchen")]
        await asyncio.sleep(60)
        await stage.send([b"9"])
        cut: datetime = moment(times[-1] + 1)
        (would,) = await drop_dead_letters(admin, "kitchen", dry_run=True)
        assert (would.from_offset, would.to_offset, would.count) == (0, 4, 4)
        assert len(await bodies(admin)) == 4
        (done,) = await drop_dead_letters(admin, "kitchen", before=moment(times[0]))
        assert done.count == 0
        (done,) = await drop_dead_letters(admin, "kitchen", before=cut)
        assert done.count == 4
        assert await bodies(admin) == []
        assert len(await bodies(admin, with_dropped=True)) == 4
        assert [each.count for each in await drop_dead_letters(admin, "kitchen")] == [0]

    bury(scene)
