"""The tables in Apache's JSON files: topics, consumer groups, consumer offsets."""

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
    """Always the same time."""

    def now_ms(self) -> int:
        return 1_700_000_000_000


def settings(root: Path, **keys: str) -> BrokerSettings:
    keys = {"storePathRootDir": str(root), "brokerName": "broker-a"} | keys
    return BrokerSettings.from_entries(entries_of(keys, "test"))


def topic_table(root: Path, **keys: str) -> TopicTable:
    table = TopicTable(settings(root, **keys), FixedClock())
    table.load()
    return table


def test_a_broker_has_apache_s_own_topics(tmp_path: Path) -> None:
    """The same names, queues and permissions as a 4.9.7 broker makes at its start."""
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


def test_settings_take_topics_away_or_add_them(tmp_path: Path) -> None:
    """No auto-creation: no TBW102; tracing: the trace topic; the cluster's topic may be closed."""
    table = topic_table(tmp_path, autoCreateTopicEnable="false", traceTopicEnable="true", clusterTopicEnable="false")
    assert table.get("TBW102") is None
    assert table.get("RMQ_SYS_TRACE_TOPIC") is not None
    cluster = table.get("DefaultCluster")
    assert cluster is not None
    assert cluster.perm == INHERIT


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (16, 8), (0, 0), (-3, 0)])
def test_a_send_creates_the_topic_with_the_smaller_number_of_queues(tmp_path: Path, asked: int, made: int) -> None:
    """The producer asks for 4 by default, TBW102 has 8: a topic never has more than either."""
    config = topic_table(tmp_path).create_by_send("orders", "TBW102", asked, 0, "test")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (made, made, READ | WRITE)


@pytest.mark.parametrize("default_topic", ["TBW102", "SELF_TEST_TOPIC", "missing"])
def test_a_send_creates_nothing_from_a_topic_that_is_not_inherited(tmp_path: Path, default_topic: str) -> None:
    """Not without auto-creation, not from a topic without the inherit permission, not from no topic."""
    table = topic_table(tmp_path, autoCreateTopicEnable="false")
    assert table.create_by_send("orders", default_topic, 4, 0, "test") is None
    assert "orders" not in table


def test_auto_creation_switched_off_while_running_creates_no_more(tmp_path: Path) -> None:
    """TBW102 is still there then, but is not copied."""
    broker_settings = settings(tmp_path)
    table = TopicTable(broker_settings, FixedClock())
    broker_settings.update(entries_of({"autoCreateTopicEnable": "false"}, "test"))
    assert table.create_by_send("orders", "TBW102", 4, 0, "test") is None


def test_every_change_is_on_the_disk_and_told(tmp_path: Path) -> None:
    """A killed broker knows at its restart each topic that a producer was answered for."""
    table = topic_table(tmp_path)
    told: list[int] = []
    table.on_change.append(lambda: told.append(table.data_version.counter))
    table.create_by_send("orders", "TBW102", 4, 0, "test")
    table.create_by_send("orders", "TBW102", 4, 0, "test")
    table.create_by_send_back("%RETRY%group", 1, READ | WRITE)
    table.update(TopicConfig(topic_name="payments", read_queue_nums=2, write_queue_nums=3))
    assert told == [1, 2, 3]
    again = topic_table(tmp_path)
    assert again.configs() == table.configs()
    assert again.data_version == table.data_version
    assert table.delete("orders")
    assert not table.delete("orders")
    assert "orders" not in topic_table(tmp_path)


def test_many_made_together_are_one_change(tmp_path: Path) -> None:
    """One write, so that a broker killed meanwhile has all of them or none, and thousands take no longer than one."""
    topics = topic_table(tmp_path)
    topics.update(*(TopicConfig(topic_name=f"t{number}") for number in range(2_000)))
    assert topics.data_version.counter == 1
    assert topic_table(tmp_path).configs() == topics.configs()
    groups = SubscriptionGroupTable(settings(tmp_path), FixedClock())
    groups.update(*(SubscriptionGroupConfig(group_name=f"g{number}") for number in range(2_000)))
    assert groups.data_version.counter == 1
    topics.update()
    assert topics.data_version.counter == 1


def test_topics_json_is_apache_s(tmp_path: Path) -> None:
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
    """fastjson writes numbers as bare keys; fields this broker does not know are passed over."""
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


def test_the_name_server_s_order_configuration_marks_topics(tmp_path: Path) -> None:
    """Exactly the topics it has are ordered; without any configuration nothing changes."""
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
def test_the_broker_s_own_topics_are_known_as_such(tmp_path: Path, topic: str) -> None:
    """They are neither created nor deleted by clients."""
    table = topic_table(tmp_path)
    assert table.is_system(topic)
    assert not table.is_system("orders")


def test_a_group_is_created_when_it_appears(tmp_path: Path) -> None:
    """With the defaults: one retry queue, sixteen redeliveries; kept over a restart."""
    groups = SubscriptionGroupTable(settings(tmp_path), FixedClock())
    found = groups.find("billing")
    assert found is not None
    assert (found.retry_queue_nums, found.retry_max_times) == (1, 16)
    again = SubscriptionGroupTable(settings(tmp_path), FixedClock())
    again.load()
    assert again.get("billing") == found


def test_no_group_is_created_when_that_is_switched_off(tmp_path: Path) -> None:
    """Those that every broker has are there."""
    groups = SubscriptionGroupTable(settings(tmp_path, autoCreateSubscriptionGroup="false"), FixedClock())
    assert groups.find("billing") is None
    assert groups.find("TOOLS_CONSUMER") is not None


def test_groups_are_changed_and_deleted(tmp_path: Path) -> None:
    """What a tool sets replaces the group's configuration."""
    groups = SubscriptionGroupTable(settings(tmp_path), FixedClock())
    groups.update(SubscriptionGroupConfig(group_name="g", retry_max_times=2))
    assert groups.delete("g")
    assert not groups.delete("g")
    assert "g" not in groups


def test_offsets_are_written_when_they_changed(tmp_path: Path) -> None:
    """Nothing is written for nothing; what is written is read again."""
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


def test_offsets_beyond_their_queues_are_set_back_for_good(tmp_path: Path) -> None:
    """The log lost its end: what is stored there from now on must be consumed, also after another kill."""
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


def test_offsets_are_found_and_forgotten_by_group_and_topic(tmp_path: Path) -> None:
    """Retry topics have their group's name in them; only whole names count."""
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
def test_offsets_that_were_forgotten_stay_forgotten_after_a_kill(tmp_path: Path, by: str) -> None:
    """A topic may be made anew at once: what groups had consumed of the former one must not count for it."""
    table = ConsumerOffsetTable(settings(tmp_path))
    for group, topic in (("g", "t"), ("h", "u")):
        table.commit(group, topic, 0, 5)
    table.save()
    run_all(table.remove_topic("t") if by == "topic" else table.remove_group("g"))
    killed = ConsumerOffsetTable(settings(tmp_path))
    killed.load()
    assert killed.table() == {"u@h": {0: 5}}
    assert (killed.groups_of("t"), killed.topics_of("g")) == ([], [])


def test_offsets_of_a_topic_that_was_made_anew_are_kept(tmp_path: Path) -> None:
    """Once they are written, the removal before them is over."""
    table = ConsumerOffsetTable(settings(tmp_path))
    table.commit("g", "t", 0, 5)
    run_all(table.remove_topic("t"))
    table.commit("g", "t", 0, 1)
    table.save()
    again = ConsumerOffsetTable(settings(tmp_path))
    again.load()
    assert again.table() == {"t@g": {0: 1}}
    assert not (tmp_path / "config" / "consumerOffset.json.log").exists()


def test_a_removal_while_offsets_are_written_is_kept(tmp_path: Path) -> None:
    """The file may have what was removed; the journal says that it is gone."""

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


def test_offsets_are_written_every_interval(tmp_path: Path) -> None:
    """The loop writes what was committed since, and survives a disk that refuses."""

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
