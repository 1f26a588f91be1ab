"""Apache's mqadmin on Apache's broker, which proves the expectations, then on ours."""

import json
import re
from pathlib import Path

from tests.peer.stage import Stage, eventually


def rows(printed: str) -> list[list[str]]:
    """Return the words of each line of a printed table, without its heading."""
    return [line.split() for line in printed.splitlines() if line.strip() and not line.startswith("#")]


def fields(printed: str) -> dict[str, str]:
    """Return the fields of `name: value` lines."""
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in printed.splitlines())}


def test_update_topic_and_topic_route(stage: Stage) -> None:
    """A topic's queue numbers are in its route, at creation and after a change."""
    topic = stage.name("topic")
    made = stage.mqadmin("updateTopic", "-b", stage.address, "-t", topic, "-r", "3", "-w", "3")
    assert "success" in made, made
    route = eventually(lambda: stage.mqadmin("topicRoute", "-t", topic), lambda reported: stage.address in reported)
    assert re.search(r'"readQueueNums":\s?3', route)

    stage.mqadmin("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "5", "-w", "5")

    route = eventually(lambda: stage.mqadmin("topicRoute", "-t", topic), lambda reported: 'Nums":5' in reported)
    assert re.search(r'"writeQueueNums":\s?5', route)
    assert re.search(r'"brokerName":\s?"broker-a"', route)
    assert re.search(r'"cluster":\s?"DefaultCluster"', route)


def test_topic_list_and_delete_topic(stage: Stage) -> None:
    """A topic is listed while it exists."""
    topic = stage.topic()
    assert topic in stage.mqadmin("topicList").split()
    assert "DefaultCluster" in stage.mqadmin("topicClusterList", "-t", topic)

    assert "success" in stage.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", topic)

    # A registration of Apache's broker that was under way may still name it.
    eventually(lambda: stage.mqadmin("topicList").split(), lambda topics: topic not in topics)
    assert "No topic route info" in stage.mqadmin("topicRoute", "-t", topic)


def test_update_order_conf(stage: Stage) -> None:
    """The order configuration is returned, is in the route, and is gone when it is deleted."""
    topic = stage.topic(queues=3)
    command = ("updateOrderConf", "-t", topic)
    assert "success" in stage.mqadmin(*command, "-m", "put", "-v", "broker-a:2")
    assert "orderConf=[broker-a:2]" in stage.mqadmin(*command, "-m", "get")
    assert re.search(r'"orderTopicConf":\s?"broker-a:2"', stage.mqadmin("topicRoute", "-t", topic))

    assert "success" in stage.mqadmin(*command, "-m", "delete")
    assert "No config item" in stage.mqadmin(*command, "-m", "get")
    assert "orderTopicConf" not in stage.mqadmin("topicRoute", "-t", topic)


def test_topic_status(stage: Stage) -> None:
    """Each queue has its offsets and, with messages, the last update."""
    topic = stage.topic(queues=2)
    producer = stage.producer()
    producer.send(topic, "a", "b", "c", mode="queue", queue=1)
    eventually(lambda: producer.offsets(topic, queue=1)["max"], lambda end: end == 3)

    empty, full = rows(stage.mqadmin("topicStatus", "-t", topic))[:2]

    assert empty == ["broker-a", "0", "0", "0"]
    assert full[:4] == ["broker-a", "1", "0", "3"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", full[4])


def test_cluster_list(stage: Stage) -> None:
    """The broker has its name, id, address and version."""
    expected = ["DefaultCluster", "broker-a", "0", stage.address]

    def reported() -> list[str]:
        return next(row for row in rows(stage.mqadmin("clusterList")) if row[:4] == expected)

    # Apache's broker reports no figures in its first second.
    version = eventually(reported, lambda row: row[4].startswith("V"))[4]
    assert re.fullmatch(r"V\d+_\d+_\d+", version)


def test_broker_status(stage: Stage) -> None:
    """The runtime statistics have the fields that tools and dashboards read."""
    stage.producer().send(stage.topic(), "counted")

    def reported() -> dict[str, str]:
        return fields(stage.mqadmin("brokerStatus", "-b", stage.address))

    status = eventually(reported, lambda status: "runtime" in status)

    assert re.fullmatch(r"V\d+_\d+_\d+", status["brokerVersionDesc"])
    assert int(status["msgPutTotalTodayNow"]) >= 1
    assert int(status["commitLogMaxOffset"]) > int(status["commitLogMinOffset"])
    for name in (
        "bootTimestamp",
        "runtime",
        "putTps",
        "getTotalTps",
        "commitLogDiskRatio",
        "putMessageTimesTotal",
    ):
        assert name in status


def test_consumer_progress_and_connection(stage: Stage) -> None:
    """A group's members and subscriptions, and its lag once it has committed."""
    topic, group = stage.topic(queues=1), stage.name("group")
    producer = stage.producer()
    producer.send(topic, "a", "b", tags="red")
    consumer = stage.consumer({topic: "red || blue"}, group)
    consumer.take(2)

    connections = stage.mqadmin("consumerConnection", "-g", group)
    assert consumer.name in connections
    assert f"%RETRY%{group}" in connections
    assert "red || blue" in connections
    assert "CONSUME_PASSIVELY" in connections
    assert "CLUSTERING" in connections
    assert "CONSUME_FROM_FIRST_OFFSET" in connections

    consumer.stop()
    producer.send(topic, "c", "d", "e")

    def progress() -> list[list[str]]:
        return [row for row in rows(stage.mqadmin("consumerProgress", "-g", group)) if row[0] == topic]

    (row,) = eventually(progress, lambda reported: bool(reported) and reported[0][3:5] == ["5", "2"])
    assert row[:6] == [topic, "broker-a", "0", "5", "2", "3"]


def test_queries_for_messages(stage: Stage) -> None:
    """By offset id, unique id, key, and queue offset."""
    topic = stage.topic(queues=1)
    sent = stage.producer().send(topic, "first", "second", tags="t", keys="k-1 k-2")
    second = sent[1]
    # Since 5.0 a message cannot be found by its offset id without its topic.
    in_topic = () if stage.version.startswith("4.") else ("-t", topic)

    listed = eventually(
        lambda: stage.mqadmin("queryMsgByKey", "-t", topic, "-k", "k-2"), lambda reported: len(rows(reported)) == 2
    )
    assert sorted(row[:3] for row in rows(listed)) == [[sent[0]["id"], "0", "0"], [sent[1]["id"], "0", "1"]]
    for command in (
        ("queryMsgById", "-i", second["offsetId"], *in_topic),
        ("queryMsgByUniqueKey", "-i", second["id"], "-t", topic),
        ("queryMsgByOffset", "-t", topic, "-b", "broker-a", "-i", "0", "-o", "1"),
    ):
        printed = stage.mqadmin(*command)
        reported = fields(printed)
        assert reported.get("Topic") == topic, printed
        assert reported["Queue Offset"] == "1"
        assert reported["Tags"] == "[t]"
        assert reported["Keys"] == "[k-1 k-2]"


def test_update_and_delete_subscription_group(stage: Stage) -> None:
    """A created group keeps its retry settings; deleted, it is gone."""
    group = stage.name("group")
    made = stage.mqadmin("updateSubGroup", "-b", stage.address, "-g", group, "-r", "3", "-q", "2")
    assert "success" in made
    assert "retryMaxTimes=3" in made

    assert "success" in stage.mqadmin("deleteSubGroup", "-b", stage.address, "-g", group)


def test_broker_config_is_shown(stage: Stage) -> None:
    """Under Apache's names."""
    shown = stage.mqadmin("getBrokerConfig", "-b", stage.address)
    settings = dict(re.findall(r"^(\w+) +=[ ]*(.*)$", shown, re.MULTILINE))

    assert settings["brokerName"] == "broker-a"
    assert settings["brokerIP1"] == "127.0.0.1"
    assert settings["messageDelayLevel"].startswith("1s 2s 1s")
    assert settings["maxMessageSize"] == "4194304"


def test_cluster_configuration_is_exported(stage: Stage, tmp_path: Path) -> None:
    """With every setting that mqadmin needs: 4.9.7's fails if one is missing."""
    exported = stage.mqadmin("exportConfigs", "-c", "DefaultCluster", "-f", str(tmp_path))
    assert exported.startswith(f"export {tmp_path}/configs.json success"), exported

    configs = json.loads((tmp_path / "configs.json").read_text())["brokerConfigs"]["broker-a"]
    assert configs["brokerRole"] == "ASYNC_MASTER"
    assert configs["flushDiskType"] == "ASYNC_FLUSH"
    assert configs["useTLS"] == "false"
