"""The tables of topics, consumer groups and offsets, in Apache's JSON files."""

import asyncio
import json
from pathlib import Path

import pytest

from rocket_broker.perm import INHERIT, READ, WRITE
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_broker.store import MessageStore
from rocket_broker.tables.consumer_offset_table import ConsumerOffsetTable
from rocket_broker.tables.subscription_group_table import SubscriptionGroupTable
from rocket_broker.tables.topic_table import TopicTable
from rocket_remoting.steps import run_all
from rocket_remoting.wire.bodies import KVTable, SubscriptionGroupConfig, TopicConfig
from streamkit.testing.virtual_time import VirtualTime


class FixedClock:
    """A clock that always shows the same time."""

    def now_ms(self) -> int:
        return 1_700_000_000_000


def settings(root: Path, **keys: str) -> BrokerSettings:
    keys = {"storePathRootDir": str(root), "brokerName": "broker-a"} | keys
    return BrokerSettings.from_entries(entries_of(keys, "test"))


def topic_table(root: Path, **keys: str) -> TopicTable:
    table = TopicTable(settings(root, **keys), FixedClock())
    table.load()
    return table


def test_broker_creates_apaches_system_topics(tmp_path: Path) -> None:
    """Names, queues and permissions are those of a 4.9.7 broker."""
    configs = topic_table(tmp_path).configs()
    shape = {name: (c.read_queue_nums, c.write_queue_nums, c.perm) for name, c in configs.items()}
    assert shape == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
    }


def test_settings_add_or_remove_system_topics(tmp_path: Path) -> None:
    """Without auto-creation there is no TBW102; with tracing there is the trace topic."""
    table = topic_table(tmp_path, autoCreateTopicEnable="false", traceTopicEnable="true", clusterTopicEnable="false")
    assert table.get("TBW102") is None
    assert table.get("RMQ_SYS_TRACE_TOPIC") is not None
    cluster = table.get("DefaultCluster")
    assert cluster is not None
    assert cluster.perm == INHERIT


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (16, 8), (0, 0), (-3, 0)])
def test_send_creates_a_topic_with_the_smaller_queue_count(tmp_path: Path, asked: int, made: int) -> None:
    """Of the producer's default (4) and that of TBW102 (8)."""
    config = topic_table(tmp_path).create_by_send("orders", "TBW102", asked, 0, "test")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (made, made, READ | WRITE)


@pytest.mark.parametrize("default_topic", ["TBW102", "SELF_TEST_TOPIC", "missing"])
def test_send_creates_no_topic_without_an_inheritable_default(tmp_path: Path, default_topic: str) -> None:
    """That is: without auto-creation, without PERM_INHERIT on the default topic, or without a default topic."""
    table = topic_table(tmp_path, autoCreateTopicEnable="false")
    assert table.create_by_send("orders", default_topic, 4, 0, "test") is None
    assert "orders" not in table


def test_disabling_auto_creation_while_running_stops_it(tmp_path: Path) -> None:
    """TBW102 still exists then but is not copied."""
    broker_settings = settings(tmp_path)
    table = TopicTable(broker_settings, FixedClock())
    broker_settings.update(entries_of({"autoCreateTopicEnable": "false"}, "test"))
    assert table.create_by_send("orders", "TBW102", 4, 0, "test") is None


def test_every_topic_change_is_written_and_reported(tmp_path: Path) -> None:
    """A broker that is killed has each topic whose creation was acknowledged."""
    table = topic_table(tmp_path)
    reported: list[int] = []
    table.on_change.append(lambda: reported.append(table.data_version.counter))
    table.create_by_send("orders", "TBW102", 4, 0, "test")
    table.create_by_send("orders", "TBW102", 4, 0, "test")
    table.create_by_send_back("%RETRY%group", 1, READ | WRITE)
    table.update(TopicConfig(topic_name="payments", read_queue_nums=2, write_queue_nums=3))
    assert reported == [1, 2, 3]
    again = topic_table(tmp_path)
    assert again.configs() == table.configs()
    assert again.data_version == table.data_version
    assert table.delete("orders")
    assert not table.delete("orders")
    assert "orders" not in topic_table(tmp_path)


def test_topics_created_together_are_one_write(tmp_path: Path) -> None:
    """A killed broker has all of them or none, and thousands take as long as one."""
    topics = topic_table(tmp_path)
    topics.update(*(TopicConfig(topic_name=f"t{number}") for number in range(2_000)))
    assert topics.data_version.counter == 1
    assert topic_table(tmp_path).configs() == topics.configs()
    groups = SubscriptionGroupTable(settings(tmp_path), FixedClock())
    groups.update(*(SubscriptionGroupConfig(group_name=f"g{number}") for number in range(2_000)))
    assert groups.data_version.counter == 1
    topics.update()
    assert topics.data_version.counter == 1


def test_topics_json_has_apaches_fields(tmp_path: Path) -> None:
    """Each topic has the fields that Apache's brokers write and read."""
    table = topic_table(tmp_path)
    table.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))
    table.save()
    stored = json.loads((tmp_path / "config" / "topics.json").read_bytes())
    assert stored["dataVersion"]["counter"] == 1
    expected = {
        "topicName": "orders",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
    }
    assert expected.items() <= stored["topicConfigTable"]["orders"].items()


def test_tables_written_by_apache_are_read(tmp_path: Path) -> None:
    """fastjson writes numbers as bare keys; unknown fields are ignored."""
    config = tmp_path / "config"
    config.mkdir()
    (config / "topics.json").write_text(
        '{"dataVersion":{"counter":7,"stateVersion":0,"timestamp":1665},'
        '"topicConfigTable":{"t":{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"t","topicSysFlag":0,'
        '"writeQueueNums":4,"new":{"x":[1]}}}}'
    )
    (config / "consumerOffset.json").write_text('{\n\t"offsetTable":{"t@g":{0:12,1:3\n\t\t}}}')
    (config / "subscriptionGroup.json").write_text(
        '{"dataVersion":{"counter":2,"timestamp":1665},"subscriptionGroupTable":{"g":{"brokerId":0,'
        '"consumeBroadcastEnable":true,"consumeEnable":false,"groupName":"g","retryMaxTimes":3,"retryQueueNums":1}}}'
    )
    topics = topic_table(tmp_path)
    assert topics.data_version.counter == 7
    assert "t" in topics
    offsets = ConsumerOffsetTable(settings(tmp_path))
    offsets.load()
    assert offsets.queues("g", "t") == {0: 12, 1: 3}
    groups = SubscriptionGroupTable(settings(tmp_path), FixedClock())
    groups.load()
    group = groups.get("g")
    assert group is not None
    assert (group.consume_enable, group.retry_max_times) == (False, 3)


def test_order_configuration_marks_exactly_its_topics(tmp_path: Path) -> None:
    """Without a configuration nothing changes."""
    table = topic_table(tmp_path)
    for name in ("a", "b"):
        table.update(TopicConfig(topic_name=name))
    table.mark_ordered(KVTable(table={"a": "broker-a:4"}))
    assert [name for name, config in table.configs().items() if config.order] == ["a"]
    version = table.data_version
    table.mark_ordered(None)
    table.mark_ordered(KVTable(table={"a": "broker-a:4"}))
    assert table.data_version == version
    table.mark_ordered(KVTable(table={"b": "broker-a:4"}))
    assert [name for name, config in table.configs().items() if config.order] == ["b"]


@pytest.mark.parametrize("topic", ["TBW102", "broker-a", "DefaultCluster", "SCHEDULE_TOPIC_XXXX"])
def test_system_topics_are_protected(tmp_path: Path, topic: str) -> None:
    """Clients can neither create nor delete them."""
    table = topic_table(tmp_path)
    assert table.is_system(topic)
    assert not table.is_system("orders")


def test_group_is_created_on_first_use(tmp_path: Path) -> None:
    """With the defaults of one retry queue and sixteen redeliveries; it survives a restart."""
    groups = SubscriptionGroupTable(settings(tmp_path), FixedClock())
    found = groups.find("billing")
    assert found is not None
    assert (found.retry_queue_nums, found.retry_max_times) == (1, 16)
    again = SubscriptionGroupTable(settings(tmp_path), FixedClock())
    again.load()
    assert again.get("billing") == found


def test_group_creation_can_be_disabled(tmp_path: Path) -> None:
    """The system groups still exist."""
    groups = SubscriptionGroupTable(settings(tmp_path, autoCreateSubscriptionGroup="false"), FixedClock())
    assert groups.find("billing") is None
    assert groups.find("TOOLS_CONSUMER") is not None


def test_groups_are_changed_and_deleted(tmp_path: Path) -> None:
    """A tool's configuration replaces the group's."""
    groups = SubscriptionGroupTable(settings(tmp_path), FixedClock())
    groups.update(SubscriptionGroupConfig(group_name="g", retry_max_times=2))
    assert groups.delete("g")
    assert not groups.delete("g")
    assert "g" not in groups


def test_offsets_are_written_only_when_changed(tmp_path: Path) -> None:
    """What is written is read again."""
    table = ConsumerOffsetTable(settings(tmp_path))
    path = tmp_path / "config" / "consumerOffset.json"
    table.save()
    assert not path.exists()
    table.commit("g", "t", 0, 5)
    table.commit("g", "t", 1, 7)
    table.commit("g", "t", 0, 4)
    table.save()
    assert json.loads(path.read_bytes()) == {"offsetTable": {"t@g": {"0": 4, "1": 7}}}
    again = ConsumerOffsetTable(settings(tmp_path))
    again.load()
    assert again.get("g", "t", 0) == 4
    assert again.get("g", "t", 2) is None
    assert again.get("g", "u", 0) is None


def test_offsets_beyond_the_queue_end_are_reset_durably(tmp_path: Path) -> None:
    """After the log lost its end, new messages at those offsets must be consumed, also after another kill."""
    table = ConsumerOffsetTable(settings(tmp_path))
    for queue_id, offset in enumerate((3, 5, 9)):
        table.commit("g", "t", queue_id, offset)
    table.save()
    for _ in range(2):
        table = ConsumerOffsetTable(settings(tmp_path))
        table.load()
        table.bound(lambda topic, queue_id: 5)
        assert table.queues("g", "t") == {0: 3, 1: 5, 2: 5}
        table.save()
    stored = json.loads((tmp_path / "config" / "consumerOffset.json").read_bytes())
    assert stored == {"offsetTable": {"t@g": {"0": 3, "1": 5, "2": 5}}}


def test_offsets_are_found_and_deleted_by_group_and_topic(tmp_path: Path) -> None:
    """Names must match as a whole, although retry topics contain the group's name."""
    table = ConsumerOffsetTable(settings(tmp_path))
    for group, topic in (("g", "t"), ("g", "%RETRY%g"), ("g2", "t"), ("g2", "t2")):
        table.commit(group, topic, 0, 1)
    assert table.topics_of("g") == ["t", "%RETRY%g"]
    assert table.groups_of("t") == ["g", "g2"]
    table.clone("g2", "g3", "t")
    assert table.queues("g3", "t") == {0: 1}
    run_all(table.remove_group("g"))
    assert table.topics_of("g") == []
    run_all(table.remove_topic("t"))
    assert set(table.table()) == {"t2@g2"}


@pytest.mark.parametrize("by", ["topic", "group"])
def test_deleted_offsets_stay_deleted_after_a_kill(tmp_path: Path, by: str) -> None:
    """A topic that is created again must not inherit the offsets of the deleted one."""
    table = ConsumerOffsetTable(settings(tmp_path))
    for group, topic in (("g", "t"), ("h", "u")):
        table.commit(group, topic, 0, 5)
    table.save()
    run_all(table.remove_topic("t") if by == "topic" else table.remove_group("g"))
    killed = ConsumerOffsetTable(settings(tmp_path))
    killed.load()
    assert killed.table() == {"u@h": {0: 5}}
    assert (killed.groups_of("t"), killed.topics_of("g")) == ([], [])


def test_offsets_of_a_recreated_topic_are_kept(tmp_path: Path) -> None:
    """Once they are written, the earlier deletion has no effect."""
    table = ConsumerOffsetTable(settings(tmp_path))
    table.commit("g", "t", 0, 5)
    run_all(table.remove_topic("t"))
    table.commit("g", "t", 0, 1)
    table.save()
    again = ConsumerOffsetTable(settings(tmp_path))
    again.load()
    assert again.table() == {"t@g": {0: 1}}
    assert not (tmp_path / "config" / "consumerOffset.json.log").exists()


def test_deletion_during_a_write_of_offsets_is_kept(tmp_path: Path) -> None:
    """The file may still contain the offsets; the journal records the deletion."""

    async def main() -> None:
        table = ConsumerOffsetTable(settings(tmp_path))
        store = MessageStore(settings(tmp_path).store_settings(), FixedClock())
        store.load()
        for number in range(20_000):
            table.commit("g", f"t{number}", 0, 1)
        writing = asyncio.create_task(table.save_periodically(store))
        await asyncio.sleep(5)
        await asyncio.sleep(0)
        run_all(table.remove_topic("t0"))
        await asyncio.sleep(1)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await store.stop()

    with VirtualTime() as time:
        time.run(main())
    stored = json.loads((tmp_path / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    assert "t0@g" in stored
    again = ConsumerOffsetTable(settings(tmp_path))
    again.load()
    assert again.get("g", "t0", 0) is None
    assert again.get("g", "t1", 0) == 1


def test_offsets_are_written_periodically(tmp_path: Path) -> None:
    """The loop writes the latest commits, and goes on after a write error."""

    async def main() -> None:
        table = ConsumerOffsetTable(settings(tmp_path))
        blocker = tmp_path / "config"
        blocker.write_text("in the way")
        store = MessageStore(settings(tmp_path).store_settings(), FixedClock())
        store.load()
        writing = asyncio.create_task(table.save_periodically(store))
        table.commit("g", "t", 0, 5)
        await asyncio.sleep(5.5)
        blocker.unlink()
        await asyncio.sleep(5)
        assert (tmp_path / "config" / "consumerOffset.json").exists()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await store.stop()

    with VirtualTime() as time:
        time.run(main())
