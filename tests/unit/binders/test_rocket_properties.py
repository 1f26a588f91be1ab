"""The RocketMQ binder's settings in both generations' spellings."""

from datetime import timedelta
from typing import Any

import pytest

from binders.rocket.binder_properties import RocketBinderProperties, RocketSpringProperties
from binders.rocket.consumer_properties import RocketConsumerProperties
from binders.rocket.producer_properties import RocketProducerProperties, SendType
from streamkit.binder.delivery import Delivery, StartPosition
from streamkit.config.environment import Environment
from streamkit.errors import ConfigurationErrors

PREFIX = "spring.cloud.stream.rocketmq"


def consumer(**settings: str) -> Delivery:
    """Return the delivery settings of a consumer binding."""
    keys = {f"{PREFIX}.bindings.input.consumer.{key}": value for key, value in settings.items()}
    environment = Environment.load(overrides=keys, variables={})
    return environment.bind_extended("rocketmq", "input", "consumer", RocketConsumerProperties).delivery()


def delivery(**terms: Any) -> Delivery:
    """A delivery with these terms, whose group begins where RocketMQ's groups do."""
    return Delivery(start=StartPosition.LAST_OFFSET, **terms)


def producer(**settings: str) -> RocketProducerProperties:
    """Return the settings of a producer binding."""
    keys = {f"{PREFIX}.bindings.output.producer.{key}": value for key, value in settings.items()}
    environment = Environment.load(overrides=keys, variables={})
    return environment.bind_extended("rocketmq", "output", "producer", RocketProducerProperties)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"orderly": "true"}, {"push.orderly": "true"}, delivery(ordered=True)),
        ({"broadcasting": "true"}, {"messageModel": "BROADCASTING"}, delivery(broadcast=True)),
        ({"tags": "a||b"}, {"subscription": "a||b"}, delivery(tags="a||b")),
        ({"sql": "x > 1"}, {"subscription": "sql:x > 1"}, delivery(sql="x > 1")),
        (
            {"delayLevelWhenNextConsume": "-1"},
            {"push.delayLevelWhenNextConsume": "-1"},
            delivery(redelivery_level=-1),
        ),
        (
            {"suspendCurrentQueueTimeMillis": "250"},
            {"push.suspend-current-queue-time-millis": "250"},
            delivery(suspend=timedelta(milliseconds=250)),
        ),
    ],
)
def test_both_generations_are_equivalent(first: dict[str, str], second: dict[str, str], expected: Delivery) -> None:
    """Each setting of the first generation has a counterpart in the second."""
    assert consumer(**first) == consumer(**second) == expected


def test_producer_cannot_be_disabled() -> None:
    """Its sends could only fail."""
    with pytest.raises(ConfigurationErrors, match=r"enabled=false: not supported: .* remove"):
        producer(enabled="false")


def test_redelivery_limit_is_the_second_generations() -> None:
    """`push.max-reconsume-times`; unset or -1 means the mode's default."""
    assert consumer(**{"push.max-reconsume-times": "2"}).redelivery_limit == 2
    assert consumer(**{"push.max-reconsume-times": "-1"}).redelivery_limit == 16
    assert consumer(orderly="true").redelivery_limit is None


def test_start_time_is_local_time() -> None:
    """`consume-timestamp` is read with its start position."""
    delivery = consumer(consumeFromWhere="CONSUME_FROM_TIMESTAMP", consumeTimestamp="20130131120000")
    assert delivery.start is StartPosition.TIMESTAMP
    assert delivery.start_time_ms is not None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, SendType.SYNC),
        ({"sync": "true"}, SendType.SYNC),
        ({"sync": "false"}, SendType.ASYNC),
        ({"sendType": "OneWay"}, SendType.ONE_WAY),
        ({"send-type": "Async"}, SendType.ASYNC),
    ],
)
def test_send_types_have_two_spellings(settings: dict[str, str], expected: SendType) -> None:
    """Both choose when a send returns."""
    assert producer(**settings).effective_send_type is expected


@pytest.mark.parametrize("name", ["sendMessageTimeout", "send-msg-timeout"])
def test_renamed_settings_have_both_names(name: str) -> None:
    """The second generation renamed some settings."""
    assert producer(**{name: "500"}).send_message_timeout == timedelta(milliseconds=500)


@pytest.mark.parametrize("key", ["spring.cloud.stream.rocketmq.binder", "rocketmq"])
@pytest.mark.parametrize("value", ["a:1;b:2", "a:1, b:2", ["a:1", "b:2"], ["a:1;b:2"]])
def test_name_servers_are_a_text_or_a_list(key: str, value: str | list[str]) -> None:
    """Spring's binder had a list of them once; both separators count."""
    listed = {"": value} if isinstance(value, str) else {f"[{at}]": each for at, each in enumerate(value)}
    table = {f"{key}.name-server{at}": each for at, each in listed.items()}
    model = RocketSpringProperties if key == "rocketmq" else RocketBinderProperties
    assert Environment.load(overrides=table, variables={}).bind(key, model).name_server == ["a:1", "b:2"]


def test_broker_delay_levels_are_read_as_in_broker_conf() -> None:
    """`1s 5s 1m`."""
    key = f"{PREFIX}.binder.message-delay-level"
    properties = Environment.load(overrides={key: "1s 5s 1m"}, variables={}).bind(
        f"{PREFIX}.binder", RocketBinderProperties
    )
    assert properties.message_delay_level == (
        timedelta(seconds=1),
        timedelta(seconds=5),
        timedelta(minutes=1),
    )


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"orderley": "true"}, "orderly"),
        ({"consumeTimestamp": "yesterday"}, "yyyyMMddHHmmss"),
        ({"messageModel": "BROADCAST"}, r"messageModel=BROADCAST: .*Property 'messageModel' was wrong\."),
        ({"pullBatchSize": "0"}, "pullBatchSize"),
        (
            {"heartbeat-broker-interval": "0"},
            "heartbeat-broker-interval=0: expected a duration longer than 0",
        ),
        ({"push.consume-timeout": "0"}, "push.consume-timeout=0: expected a duration longer than 0"),
        (
            {"push.pull-threshold-for-topic": "-7"},
            "push.pull-threshold-for-topic=-7: expected greater than or equal to -1",
        ),
        (
            {"max-decompressed-body-size": "200000000"},
            "134217728 is smaller than max-decompressed-body-size, which is 200000000",
        ),
    ],
)
def test_invalid_setting_is_reported(settings: dict[str, str], says: str) -> None:
    """An unknown key with the nearest one; a wrong value with what is expected."""
    with pytest.raises(ConfigurationErrors, match=says):
        consumer(**settings)
