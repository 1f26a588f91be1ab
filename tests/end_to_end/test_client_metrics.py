"""Metrics of our clients, through the bundled broker, in virtual time."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rocket_client import ClientMetrics, SendError, Success
from rocket_client.metrics import METRICS
from rocket_remoting import Message, MessageQueue
from tests.end_to_end.client_stage import ClientStage, RecordingListener, play


def samples(metrics: ClientMetrics) -> Mapping[str, float]:
    """Return what Prometheus' parser reads, by name and labels, without the client's id and without buckets."""
    found = {}
    for family in text_string_to_metric_families(metrics.prometheus_text()):
        for sample in family.samples:
            if "le" not in sample.labels:
                kept = [f"{name}={value}" for name, value in sample.labels.items() if name != "client_id"]
                found[f"{sample.name} {' '.join(kept)}"] = sample.value
    return found


def test_sends_are_counted_by_topic_and_outcome() -> None:
    """A batch counts once; a topic's counters are all there from its first send on."""
    metrics = ClientMetrics()

    async def scene(stage: ClientStage) -> None:
        async with stage.producer(metrics=metrics) as producer:
            await producer.send(Message("orders", b"1"))
            await producer.send_async(Message("orders", b"2"))
            await producer.send_batch([Message("orders", b"3"), Message("orders", b"4")])
            with pytest.raises(SendError):
                await producer.send(Message("orders", b"lost"), queue=MessageQueue("orders", "absent", 0))

    play(scene)
    found = samples(metrics)
    assert found["rocketmq_send_cost_time_count topic=orders invocation_status=success"] == 3
    assert found["rocketmq_send_cost_time_count topic=orders invocation_status=failure"] == 1
    assert found["streamkit_client_failed_attempts_total topic=orders"] == 1


def test_calls_of_the_listener_are_counted() -> None:
    """How long messages waited and were handled, by outcome; a failed one counts again with its next delivery."""
    metrics = ClientMetrics()

    def says(message: Any) -> Any:
        if message.reconsume_times == 0 and message.body == b"bad":
            return ValueError("first")
        return asyncio.sleep(2.0)

    async def scene(stage: ClientStage) -> None:
        listener = RecordingListener(says)
        async with stage.producer() as producer, stage.concurrent(listener, metrics=metrics, concurrency=1):
            await producer.send_batch(
                [Message("orders", b"good"), Message("orders", b"good"), Message("orders", b"bad")]
            )
            await listener.count(4)

    play(scene)
    found = samples(metrics)
    of_orders = "topic=orders consumer_group=kitchen"
    assert found[f"rocketmq_process_time_count {of_orders} invocation_status=success"] == 3
    assert found[f"rocketmq_process_time_sum {of_orders} invocation_status=success"] == pytest.approx(6_000, rel=0.01)
    assert found[f"rocketmq_process_time_count {of_orders} invocation_status=failure"] == 1
    assert found[f"rocketmq_await_time_count {of_orders}"] == 4
    assert found[f"streamkit_client_received_messages_total {of_orders}"] == 4
    # The second message waits for the first one's call, the third for both.
    assert found[f"rocketmq_await_time_sum {of_orders}"] == pytest.approx(6_000, rel=0.01)
    assert found[f"rocketmq_delivery_latency_count {of_orders}"] >= 2
    assert f"rocketmq_consumer_cached_messages {of_orders}" not in found  # the consumer has stopped


def test_messages_that_wait_are_shown() -> None:
    """While the consumer runs. Counters of its topics are 0 before the first message."""
    metrics = ClientMetrics()

    async def scene(stage: ClientStage) -> None:
        release = asyncio.Event()

        async def hold() -> None:
            await release.wait()

        listener = RecordingListener(lambda message: hold())
        async with stage.producer() as producer, stage.concurrent(listener, metrics=metrics, concurrency=1):
            before = samples(metrics)
            assert (
                before["rocketmq_process_time_count topic=orders consumer_group=kitchen invocation_status=failure"] == 0
            )
            assert before["rocketmq_consumer_cached_messages topic=orders consumer_group=kitchen"] == 0
            await producer.send_batch([Message("orders", b"12345"), Message("orders", b"12345")])
            await asyncio.sleep(60)  # both messages have been pulled, and the call of the first has not ended
            held = samples(metrics)
            assert held["rocketmq_consumer_cached_messages topic=orders consumer_group=kitchen"] == 2
            assert held["rocketmq_consumer_cached_bytes topic=orders consumer_group=kitchen"] == 10
            assert held["streamkit_client_lag_messages topic=orders consumer_group=kitchen"] == 0
            release.set()
            await listener.count(2)

    play(scene)


def test_polled_messages_are_counted() -> None:
    """From 0 on; those that were not pulled yet are the lag."""
    metrics = ClientMetrics()
    received = "streamkit_client_received_messages_total topic=orders consumer_group=kitchen"
    lag = "streamkit_client_lag_messages topic=orders consumer_group=kitchen"

    async def scene(stage: ClientStage) -> None:
        async with stage.polling(metrics=metrics):
            assert samples(metrics)[received] == 0
        await stage.send([b"1", b"2", b"3", b"4", b"5"], queue=0)
        limits = {"pull_threshold_for_all": 1, "pull_batch_size": 2}
        async with stage.polling(metrics=metrics, **limits) as consumer:
            await asyncio.sleep(60)  # two messages wait, and no more are pulled
            assert samples(metrics)[received] == 2
            assert samples(metrics)[lag] == 3
            while samples(metrics)[received] < 5:
                assert await consumer.poll()
            assert samples(metrics)[lag] == 0
        assert lag not in samples(metrics)  # the consumer has stopped
        assert samples(metrics)[received] == 5

    play(scene)


def test_pulled_messages_are_counted() -> None:
    """Of a consumer that pulls queue by queue, from the moment when it asks for the queues of a topic."""
    metrics = ClientMetrics()
    of_orders = "topic=orders consumer_group=kitchen"

    async def scene(stage: ClientStage) -> None:
        await stage.send([b"1", b"2", b"3", b"4", b"5"], queue=0)
        async with stage.pulling(metrics=metrics) as consumer:
            queue, other, *_ = await consumer.fetch_message_queues("orders")
            found = samples(metrics)
            assert found[f"streamkit_client_received_messages_total {of_orders}"] == 0
            assert f"streamkit_client_lag_messages {of_orders}" not in found
            await consumer.pull(queue, 0, max_messages=3)
            await consumer.pull(other, 0)
            found = samples(metrics)
            assert found[f"streamkit_client_received_messages_total {of_orders}"] == 3
            assert found[f"streamkit_client_lag_messages {of_orders}"] == 2
            assert found[f"rocketmq_delivery_latency_count {of_orders}"] == 1
            assert f"rocketmq_consumer_cached_messages {of_orders}" not in found
            await consumer.pull(queue, 3)
            assert samples(metrics)[f"streamkit_client_lag_messages {of_orders}"] == 0
        found = samples(metrics)
        assert found[f"streamkit_client_received_messages_total {of_orders}"] == 5
        assert f"streamkit_client_lag_messages {of_orders}" not in found

    play(scene)


def test_ordered_calls_are_counted_by_their_messages() -> None:
    """The messages of one call count each, with the time of the call."""
    metrics = ClientMetrics()

    listener = RecordingListener(lambda message: Success())

    async def scene(stage: ClientStage) -> None:
        async with (
            stage.producer() as producer,
            stage.orderly(listener, consume_message_batch_max_size=3, metrics=metrics),
        ):
            await producer.send_batch([Message("orders", body) for body in (b"a", b"b", b"c")])
            await listener.count(3)

    play(scene)
    found = samples(metrics)
    assert found["rocketmq_process_time_count topic=orders consumer_group=kitchen invocation_status=success"] == 3
    assert found["rocketmq_await_time_count topic=orders consumer_group=kitchen"] == len(listener.batches)


def test_text_describes_each_metric() -> None:
    """With its type, also before anything was counted."""
    lines = ClientMetrics().prometheus_text().splitlines()
    assert lines[0].startswith("# HELP rocketmq_send_cost_time Milliseconds ")
    assert [line for line in lines if line.startswith("# TYPE")] == [
        f"# TYPE {metric.name} {metric.kind.value}" for metric in METRICS
    ]
