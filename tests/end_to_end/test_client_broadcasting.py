"""Broadcasting on the bundled broker: every member receives everything and keeps its own offsets."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rocket_client import GroupInUseError, MessageModel, PushConsumer
from rocket_remoting.wire.bodies import ResetOffsetBody, decode_body
from tests.end_to_end.client_stage import ClientStage, RecordingListener, orders_of, play


def listening(stage: ClientStage, heard: RecordingListener, directory: Path, **settings: Any) -> PushConsumer:
    settings = {"message_model": MessageModel.BROADCASTING, "local_offset_store_dir": directory, **settings}
    return stage.concurrent(heard, **settings)


def test_every_broadcast_member_receives_everything(tmp_path: Path) -> None:
    """Each has every queue of the topic, and no retry topic."""

    async def scene(stage: ClientStage) -> None:
        first, second = RecordingListener(), RecordingListener()
        async with (
            listening(stage, first, tmp_path, instance_name="one") as one,
            listening(stage, second, tmp_path, instance_name="two") as two,
        ):
            assert one.assigned == two.assigned == orders_of(one)
            await stage.send([b"%d" % number for number in range(20)])
            await first.count(20)
            await second.count(20)
        assert sorted(first.bodies) == sorted(second.bodies)

    play(scene)


def test_broadcast_failure_is_logged_and_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is sent back, and the queue continues."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: ValueError("no"))
        async with listening(stage, heard, tmp_path):
            await stage.send([b"x", b"y"], queue=0)
            await heard.count(2)
            await asyncio.sleep(600)
        assert heard.bodies == [b"x", b"y"]

    play(scene)
    assert "drops a message that failed in broadcasting" in caplog.text


def test_broadcast_member_continues_at_its_offsets(tmp_path: Path) -> None:
    """Its file is found by client id and group; the broker stores none."""

    async def scene(stage: ClientStage) -> None:
        first, second = RecordingListener(), RecordingListener()
        await stage.send([b"1"], queue=0)
        async with listening(stage, first, tmp_path):
            await first.count(1)
        await stage.send([b"2"], queue=0)
        async with listening(stage, second, tmp_path):
            await second.count(1)
            await asyncio.sleep(30)
        assert (first.bodies, second.bodies) == ([b"1"], [b"2"])

    play(scene)
    (file,) = tmp_path.rglob("offsets.json")
    assert file.parent.name == "kitchen"
    assert file.parent.parent.name.endswith("@DEFAULT")


def test_broadcast_offsets_are_written_every_5_seconds(tmp_path: Path) -> None:
    """A killed member repeats at most that much."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with listening(stage, heard, tmp_path):
            await stage.send([b"1"], queue=0)
            await heard.count(1)
            await asyncio.sleep(16)
            assert written() == {0: 1}

    def written() -> dict[int, int]:
        (file,) = tmp_path.rglob("offsets.json")
        offsets = decode_body(file.read_bytes(), ResetOffsetBody).offset_table
        return {queue.queue_id: offset for queue, offset in offsets.items() if offset}

    play(scene)


def test_two_broadcast_members_with_one_name_are_refused(tmp_path: Path) -> None:
    """They would overwrite each other's file."""

    async def scene(stage: ClientStage) -> None:
        async with listening(stage, RecordingListener(), tmp_path):
            with pytest.raises(GroupInUseError):
                await listening(stage, RecordingListener(), tmp_path).start()

    play(scene)
