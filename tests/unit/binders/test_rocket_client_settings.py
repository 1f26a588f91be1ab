"""Each setting of a RocketMQ binding reaches its client."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from binders.rocket.binder_properties import RocketBinderProperties, RocketSpringProducerProperties
from binders.rocket.client_settings import ClientSettingsMaker
from binders.rocket.consumer_properties import RocketConsumerProperties
from binders.rocket.producer_properties import RocketProducerProperties
from rocket_broker.embedded import EmbeddedBroker
from rocket_client import Producer, PushConsumer, PushConsumerSettings
from streamkit import StreamApplication
from streamkit.binder.binder import BindingState, ConsumerDestination, ProducerDestination

STREAM = "spring.cloud.stream"
ROCKET = f"{STREAM}.rocketmq"


def milliseconds(number: int) -> timedelta:
    """Return a duration."""
    return timedelta(milliseconds=number)


COMMON = {
    "namespace": ("here", "namespace", "here"),
    "unit-name": ("here", "unit_name", "here"),
    "customized-trace-topic": ("traces", "trace_topic", "traces"),
    "vip-channel-enabled": ("false", "vip_channel_enabled", False),
    "poll-name-server-interval": ("7000", "poll_name_server_interval", milliseconds(7000)),
    "heartbeat-broker-interval": ("8000", "heartbeat_broker_interval", milliseconds(8000)),
}
PRODUCER = COMMON | {
    "send-message-timeout": ("4000", "send_timeout", milliseconds(4000)),
    "send-msg-timeout": ("4000", "send_timeout", milliseconds(4000)),
    "compress-message-body-threshold": ("77", "compress_body_threshold", 77),
    "compress-msg-body-threshold": ("77", "compress_body_threshold", 77),
    "retry-times-when-send-failed": ("5", "retry_times_when_send_failed", 5),
    "retry-times-when-send-async-failed": ("6", "retry_times_when_send_async_failed", 6),
    "retry-next-server": ("true", "retry_another_broker_when_not_store_ok", True),
    "retry-another-broker": ("true", "retry_another_broker_when_not_store_ok", True),
    "max-message-size": ("999", "max_message_size", 999),
}
CONSUMER = COMMON | {
    "persist-consumer-offset-interval": ("9000", "persist_consumer_offset_interval", milliseconds(9000)),
    "pull-batch-size": ("17", "pull_batch_size", 17),
    "pull-threshold-for-queue": ("18", "pull_threshold_for_queue", 18),
    "pull-threshold-size-for-queue": ("19", "pull_threshold_size_for_queue", 19),
    "max-decompressed-body-size": ("1000", "max_decompressed_body_size", 1000),
    "max-decompressed-size": ("134217729", "max_decompressed_size", 134217729),
    "consume-max-span": ("20", "consume_concurrently_max_span", 20),
    "pull-time-delay-mills-when-exception": ("21", "pull_time_delay_when_exception", milliseconds(21)),
    "push.pull-threshold-for-topic": ("22", "pull_threshold_for_topic", 22),
    "push.pull-threshold-size-for-topic": ("23", "pull_threshold_size_for_topic", 23),
    "push.pull-interval": ("24", "pull_interval", milliseconds(24)),
    "push.consume-timeout": ("25", "consume_timeout", timedelta(minutes=25)),
    "suspend-current-queue-time-millis": ("26", "suspend_current_queue_time", milliseconds(26)),
}


def clients(store: Path, settings: Mapping[str, str]) -> dict[str, object]:
    """Return the client settings of an application with an input `in` and an output `out`."""
    found: dict[str, object] = {}

    async def main() -> None:
        async with EmbeddedBroker(store) as broker:
            app = StreamApplication(
                config_location="optional:/none",
                properties={
                    f"{ROCKET}.binder.name-server": broker.name_server_address,
                    f"{ROCKET}.binder.provisioning": "create",
                    f"{STREAM}.default-binder": "rocketmq",
                    f"{STREAM}.bindings.in.destination": "topic",
                    f"{STREAM}.bindings.in.group": "g",
                    f"{STREAM}.bindings.out.destination": "topic",
                    f"{STREAM}.input-bindings": "in",
                    f"{STREAM}.output-bindings": "out",
                    **settings,
                },
            )

            @app.customize_producer
            def see_producer(producer: Producer, destination: ProducerDestination) -> None:
                found["producer"] = producer.settings

            @app.customize_consumer
            def see_consumer(consumer: PushConsumer, destination: ConsumerDestination) -> None:
                found["consumer"] = consumer.settings

            async with app:
                found["state"] = app.binding("in").state

    asyncio.run(main())
    return found


@pytest.mark.parametrize("place", ["bindings.{name}", "default"])
def test_binding_settings_reach_its_client(tmp_path: Path, place: str) -> None:
    """Set for the binding or by default, in either spelling."""
    names = {"producer": "out", "consumer": "in"}
    for spelling in (dict(list(PRODUCER.items())[::-1]), PRODUCER):
        sides = {"producer": spelling, "consumer": CONSUMER}
        given: dict[str, str] = {}
        expected: dict[tuple[str, str], object] = {}
        for side, table in sides.items():
            for key, (text, field, value) in table.items():
                if (side, field) not in expected:
                    given[f"{ROCKET}.{place.format(name=names[side])}.{side}.{key}"] = text
                    expected[side, field] = value
        found = clients(tmp_path, given)
        assert {(side, field): getattr(found[side], field) for side, field in expected} == expected


def test_binder_settings_are_the_defaults_of_bindings(tmp_path: Path) -> None:
    """Including those that Spring Cloud Alibaba declares there and ignores."""
    keys = [*COMMON, "persist-consumer-offset-interval"]
    found = clients(tmp_path, {f"{ROCKET}.binder.{key}": CONSUMER[key][0] for key in keys})
    for side, known in (("producer", [*COMMON]), ("consumer", keys)):
        for key in known:
            _, field, value = CONSUMER[key]
            assert getattr(found[side], field) == value, (side, key)


def test_disabled_consumer_is_not_started(tmp_path: Path) -> None:
    """`consumer.enabled=false`, as in the first generation."""
    key = f"{ROCKET}.bindings.in.consumer.enabled"
    assert clients(tmp_path, {key: "false"})["state"] is BindingState.STOPPED
    assert clients(tmp_path, {key: "true"})["state"] is BindingState.RUNNING


def test_broadcasting_instances_on_a_machine_have_separate_offsets(tmp_path: Path) -> None:
    """By instance index;

    the first one's file is where Apache's client has it. A group's shared offsets need no name.
    """

    def name(**settings: str) -> str | None:
        found = clients(tmp_path, {f"{ROCKET}.binder.offset-store": str(tmp_path), **settings})["consumer"]
        assert isinstance(found, PushConsumerSettings)
        return found.instance_name

    broadcasting, index = f"{ROCKET}.bindings.in.consumer.broadcasting", f"{STREAM}.instance-index"
    count = {f"{STREAM}.instance-count": "2"}
    assert name(**{broadcasting: "true", index: "1"}, **count) == "DEFAULT-1"
    assert name(**{broadcasting: "true", index: "0"}, **count) is None
    assert name(**{index: "1"}, **count) is None


@pytest.mark.parametrize(
    ("binding", "binder", "starter", "expected"),
    [
        ({}, {}, {}, None),
        ({"enable_msg_trace": True}, {}, {}, "RMQ_SYS_TRACE_TOPIC"),
        ({}, {"enable_msg_trace": True, "customized_trace_topic": "all"}, {}, "all"),
        ({"customized_trace_topic": "own"}, {"customized_trace_topic": "all"}, {}, "own"),
        ({"enable_msg_trace": False}, {"customized_trace_topic": "all"}, {}, None),
        ({}, {}, {"enable_msg_trace": True}, "RMQ_SYS_TRACE_TOPIC"),
    ],
)
def test_message_trace_is_written_where_it_is_asked_for(
    binding: dict[str, object], binder: dict[str, object], starter: dict[str, object], expected: str | None
) -> None:
    """By the binding, by its binder, or for producers by Spring's starter."""
    maker = ClientSettingsMaker(
        ["a:1"],
        RocketBinderProperties.model_validate(binder),
        RocketSpringProducerProperties.model_validate(starter),
    )
    assert maker.trace_topic(RocketProducerProperties.model_validate(binding)) == expected
    if not starter:
        assert maker.trace_topic(RocketConsumerProperties.model_validate(binding)) == expected
