"""Settings that are changed while a broker runs: they count at once, and stand in the file it was started with."""

from pathlib import Path

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.errors import SettingError
from rocket_broker.properties_file import entries_of
from rocket_remoting.codes import RequestCode as Code
from rocket_remoting.codes import ResponseCode
from tests.end_to_end.raw_client import RawClient, with_broker


async def change(client: RawClient, text: str) -> int:
    """Return the code of the answer to a change."""
    return (await client.ask(Code.UPDATE_BROKER_CONFIG, None, text.encode())).code


def test_topics_may_be_made_by_sends_from_now_on() -> None:
    """With as many queues as the settings say at that moment; clients find the topic that is copied."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        assert (await client.try_send("first")).code == ResponseCode.TOPIC_NOT_EXIST
        assert await change(client, "autoCreateTopicEnable=true\ndefaultTopicQueueNums=2\n") == 0
        await client.send("first", default_topic_queue_nums=4)
        config = embedded.broker.topics.get("first")
        assert config is not None
        assert config.write_queue_nums == 2
        await change(client, "autoCreateTopicEnable=false\n")
        assert (await client.try_send("second")).code == ResponseCode.TOPIC_NOT_EXIST

    with_broker(scene, autoCreateTopicEnable="false")


def test_a_change_is_written_into_the_file_and_nothing_else_there_is_touched(tmp_path: Path) -> None:
    """Comments and order stay; a setting that the file had not is at its end."""
    file = tmp_path / "broker.conf"
    file.write_text("# our broker\ntraceOn = true\n\nregionId=r1\n")

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        embedded.broker.settings.source = file
        assert await change(client, "traceOn=false\nmaxTopics=100\n") == 0
        assert await change(client, "regionId=r2\nlistenPort=1\n") == ResponseCode.SYSTEM_ERROR

    with_broker(scene)
    assert file.read_text() == "# our broker\ntraceOn=false\n\nregionId=r1\nmaxTopics=100\n"


def test_what_cannot_be_written_into_the_file_is_not_changed(tmp_path: Path) -> None:
    """The next start would not know of it."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        settings = embedded.broker.settings
        settings.source = tmp_path / "missing" / "broker.conf"
        assert await change(client, "traceOn=false\n") == ResponseCode.SYSTEM_ERROR
        assert settings.trace_on

    with_broker(scene)


def test_a_change_counts_although_the_topics_cannot_be_written() -> None:
    """On a full disk, who takes the write permission away is heard: name servers are told."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        broker = embedded.broker
        told: list[int] = []
        broker.topics.on_change.append(lambda: told.append(1))
        in_the_way = broker.settings.config_dir / "topics.json.tmp"
        in_the_way.mkdir(parents=True)
        try:
            assert await change(client, "brokerPermission=4\nflushDelayOffsetInterval=77\n") == 0
            assert (broker.settings.broker_permission, broker.delays.flush_seconds) == (4, 0.077)
            assert told
        finally:
            in_the_way.rmdir()

    with_broker(scene)


def test_a_setting_that_is_read_at_the_start_is_refused_by_name() -> None:
    """And tells what to do; the value it has is no change."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        settings = embedded.broker.settings
        with pytest.raises(SettingError, match=r"flushDiskType.*restart with it"):
            settings.update(entries_of({"traceOn": "false", "flushDiskType": "SYNC_FLUSH"}, "test"))
        assert settings.trace_on
        settings.update(entries_of({"flushDiskType": "ASYNC_FLUSH"}, "test"))

    with_broker(scene)
