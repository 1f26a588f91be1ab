"""The text of a client's metrics, and its bounds."""

from rocket_client import ClientMetrics
from rocket_client.metrics import MOST_TOPICS, OTHER_TOPICS


def lines(metrics: ClientMetrics, start: str) -> list[str]:
    """Return the samples that begin so."""
    return [line for line in metrics.prometheus_text().splitlines() if line.startswith(start)]


def test_buckets_count_all_values_up_to_their_bound() -> None:
    """The bounds are those of RocketMQ 5's clients, in milliseconds."""
    metrics = ClientMetrics()
    producer = metrics.producer("c-1")
    for seconds in (0.0005, 0.001, 0.007, 3.0):
        producer.sent("orders", seconds, succeeded=True)
    labels = 'topic="orders",client_id="c-1",invocation_status="success"'
    assert lines(metrics, f"rocketmq_send_cost_time_bucket{{{labels}") == [
        f'rocketmq_send_cost_time_bucket{{{labels},le="{bound}"}} {count}'
        for bound, count in (("1", 2), ("5", 2), ("10", 3), ("20", 3), ("50", 3), ("200", 3), ("500", 3), ("+Inf", 4))
    ]
    assert lines(metrics, "rocketmq_send_cost_time_sum{" + labels) == [
        f"rocketmq_send_cost_time_sum{{{labels}}} 3008.5"
    ]


def test_labels_are_escaped() -> None:
    metrics = ClientMetrics()
    metrics.producer('a"b\\c\nd').attempt_failed("orders")
    assert lines(metrics, "streamkit") == [
        r'streamkit_client_failed_attempts_total{topic="orders",client_id="a\"b\\c\nd"} 1'
    ]


def test_further_topics_are_counted_together() -> None:
    """Names of topics may come from messages: the memory is bounded."""
    metrics = ClientMetrics()
    producer = metrics.producer("c")
    consumer = metrics.consumer("c", "g", (), lambda: ())
    for number in range(MOST_TOPICS + 5):
        producer.sent(f"t{number}", 0.001, succeeded=True)
        consumer.arrived(f"t{number}", -3.0)
    other = f'topic="{OTHER_TOPICS}"'
    (sends,) = lines(metrics, f'rocketmq_send_cost_time_count{{{other},client_id="c",invocation_status="success"')
    assert sends.endswith(" 5")
    (pulls,) = lines(metrics, f"rocketmq_delivery_latency_count{{{other}")
    assert pulls.endswith(" 5")
    assert len(lines(metrics, "rocketmq_delivery_latency_count")) == MOST_TOPICS + 1
