"""Settings: documented defaults and validation."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rocket_client import ClientSettings, Credentials, MessageModel, ProducerSettings, PushConsumerSettings
from rocket_client.settings import parse_addresses

ADDRESS = "127.0.0.1:9876"


def test_producers_have_apaches_defaults() -> None:
    """3 s, 2 retries, 4096 bytes, 4 MiB, TBW102 with 4 queues, no fault table, no VIP channel."""
    settings = ProducerSettings(name_servers=ADDRESS)
    assert settings.send_timeout == timedelta(seconds=3)
    assert settings.retry_times_when_send_failed == settings.retry_times_when_send_async_failed == 2
    assert settings.compress_body_threshold == 4096
    assert settings.max_message_size == 4 * 1024 * 1024
    assert (settings.create_topic_key, settings.default_topic_queue_nums) == ("TBW102", 4)
    assert not settings.send_latency_fault_enable
    assert not settings.vip_channel_enabled
    assert settings.retry_response_codes == {17, 14, 1, 16, 204, 205}


def test_consumers_have_apaches_defaults() -> None:
    """Batches of 32 and 1, 20 calls, 1000 messages, 100 MiB, a span of 2000, 15 min, 15 s, 30 s, 20 s."""
    settings = PushConsumerSettings(name_servers=ADDRESS)
    assert settings.message_model is MessageModel.CLUSTERING
    assert (settings.pull_batch_size, settings.consume_message_batch_max_size) == (32, 1)
    assert settings.concurrency == 20
    assert (settings.pull_threshold_for_queue, settings.pull_threshold_size_for_queue) == (1000, 100)
    assert settings.consume_concurrently_max_span == 2000
    assert settings.consume_timeout == timedelta(minutes=15)
    assert settings.broker_suspend_max_time == timedelta(seconds=15)
    assert settings.consumer_timeout_when_suspend == timedelta(seconds=30)
    assert settings.rebalance_interval == settings.lock_interval == timedelta(seconds=20)
    assert settings.lock_max_live_time == timedelta(seconds=30)
    assert settings.suspend_current_queue_time == timedelta(seconds=1)
    assert settings.persist_consumer_offset_interval == timedelta(seconds=5)
    assert settings.max_reconsume_times == -1


def test_copies_have_other_values_and_are_checked_too() -> None:
    """As customizers of an application change settings."""
    settings = PushConsumerSettings(name_servers=ADDRESS, credentials=Credentials("me", "hush-hush"))
    copied = replace(settings, pull_batch_size=64, name_servers="a:1;b:2")
    assert (copied.pull_batch_size, copied.name_server_addresses) == (64, ("a:1", "b:2"))
    assert copied.credentials == settings.credentials
    assert replace(copied, pull_batch_size=32, name_servers=ADDRESS) == settings
    with pytest.raises(ValueError, match="pull_batch_size must be at least 1, not 0"):
        replace(settings, pull_batch_size=0)
    with pytest.raises(AttributeError, match="immutable"):
        settings.pull_batch_size = 64  # type: ignore[misc]  # that it is frozen is tested


@pytest.mark.parametrize("text", ["a:1;b:2", "a:1, b:2", " a:1 ;; b:2; "])
def test_addresses_are_read_from_text(text: str) -> None:
    """Separated by semicolons, as in Java, or by commas."""
    assert parse_addresses(text) == ("a:1", "b:2")
    assert ClientSettings(name_servers=text).name_server_addresses == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"name_servers": ""}, "name_servers is empty"),
        ({"name_servers": ["localhost"]}, "'localhost' is not host:port"),
        ({"name_servers": "a:b"}, "not host:port"),
        ({"heartbeat_broker_interval": timedelta()}, "heartbeat_broker_interval must be longer than 0"),
        ({"pull_batch_size": 0}, "pull_batch_size must be at least 1, not 0"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"max_reconsume_times": -2}, "max_reconsume_times must be at least -1"),
    ],
)
def test_invalid_consumer_setting_is_named(wrong: dict[str, Any], reason: str) -> None:
    """With its value and what is expected."""
    with pytest.raises(ValueError, match=reason):
        PushConsumerSettings(**{"name_servers": ADDRESS, **wrong})


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"send_timeout": timedelta(seconds=-1)}, "send_timeout"),
        ({"retry_times_when_send_failed": -1}, "retry_times_when_send_failed must be at least 0"),
        ({"max_message_size": 0}, "max_message_size"),
    ],
)
def test_invalid_producer_setting_is_named(wrong: dict[str, Any], reason: str) -> None:
    """With its value and what is expected."""
    with pytest.raises(ValueError, match=reason):
        ProducerSettings(**{"name_servers": ADDRESS, **wrong})
