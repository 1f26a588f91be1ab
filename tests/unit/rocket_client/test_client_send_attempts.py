"""Send attempts: when and where a send is retried, and how it ends. The test sets the times."""

import pytest

from rocket_client import ProducerSettings
from rocket_client.core.queue_choice import QueueChoice
from rocket_client.core.send_attempts import SendAttempts, SendRules
from rocket_client.core.send_result import SendResult, SendStatus
from rocket_client.core.topic_route import TopicRoute
from rocket_client.errors import SendError, SendRejectedError, SendTimeoutError
from rocket_remoting.wire.bodies import BrokerData, QueueData, TopicRouteData
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.errors import ConnectionLost, RequestTimeout, ResponseError, TooManyRequests
from rocket_remoting.wire.message import MessageQueue

SETTINGS = ProducerSettings(
    name_servers="a:1",
    retry_times_when_send_failed=2,
    retry_times_when_send_async_failed=1,
    retry_another_broker_when_not_store_ok=True,
    retry_response_codes=frozenset({ResponseCode.SYSTEM_BUSY}),
)
LOST, BUSY = ConnectionLost("broker:1"), ResponseError(ResponseCode.SYSTEM_BUSY)


def send(*, is_fixed: bool = False, sync: bool = True, limit: float = 3.0) -> SendAttempts:
    """Return a send that starts at 100 s."""
    return SendAttempts("orders", SendRules.of(SETTINGS, is_fixed=is_fixed, sync=sync), 100.0, limit)


def result(status: SendStatus) -> SendResult:
    """Return the result of a stored message."""
    return SendResult(status, "id", "offset id", MessageQueue("orders", "broker-a", 0), 7)


@pytest.mark.parametrize(("is_fixed", "sync", "most"), [(0, 1, 3), (1, 1, 1), (0, 0, 2), (1, 0, 2)])
def test_attempts_are_limited(is_fixed: bool, sync: bool, most: int) -> None:
    """`send` to a fixed queue has one; the error names all brokers and causes."""
    attempts = send(is_fixed=is_fixed, sync=sync)
    for number in range(most):
        assert attempts.may_begin(100.0)
        attempts.begin(f"broker-{number}")
        attempts.failed(LOST)
    assert not attempts.may_begin(100.0)
    assert attempts.last_broker == f"broker-{most - 1}"
    with pytest.raises(SendError) as caught:
        attempts.conclude(100.0)
    assert type(caught.value) is SendError
    assert (len(caught.value.brokers), list(caught.value.causes)) == (most, [LOST] * most)


@pytest.mark.parametrize(("sync", "goes_on"), [(True, True), (False, False)])
def test_only_send_retries_after_an_error_answer(sync: bool, goes_on: bool) -> None:
    """For the retryable codes of the settings; `send_async` fails after any."""
    attempts = send(sync=sync)
    attempts.begin("broker-a")
    attempts.failed(BUSY)
    assert attempts.may_begin(100.0) is goes_on


def test_rejection_ends_the_send() -> None:
    """Whatever attempts and time are left."""
    attempts = send()
    attempts.begin("broker-a")
    attempts.failed(ResponseError(ResponseCode.MESSAGE_ILLEGAL, "as the broker says"))
    assert not attempts.may_begin(100.0)
    with pytest.raises(SendRejectedError, match="as the broker says"):
        attempts.conclude(100.0)


def test_timeout_covers_all_attempts() -> None:
    """No attempt starts after the deadline."""
    attempts = send(limit=3.0)
    assert attempts.deadline == 103.0
    assert attempts.may_begin(102.9)
    assert not attempts.may_begin(103.0)
    with pytest.raises(SendTimeoutError):
        attempts.conclude(103.0)


def test_last_attempt_without_an_answer_is_a_timeout() -> None:
    """Even if the deadline has not passed."""
    attempts = send()
    attempts.failed(LOST)
    attempts.failed(RequestTimeout("broker:1", 310, 3.0))
    with pytest.raises(SendTimeoutError):
        attempts.conclude(100.0)


def test_unsafe_store_status_is_retried_if_configured() -> None:
    """The last such result counts if nothing better follows; a later rejection does not undo it."""
    attempts, kept = send(), result(SendStatus.FLUSH_DISK_TIMEOUT)
    assert not attempts.is_final(kept)
    attempts.failed(ResponseError(ResponseCode.MESSAGE_ILLEGAL))
    assert attempts.conclude(100.0) is kept
    assert attempts.is_final(result(SendStatus.SEND_OK))
    assert send(sync=False).is_final(kept)


class Clock:
    """A clock whose seconds the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def two_brokers() -> TopicRoute:
    """Return a route with two queues at each of two brokers."""
    names = ("broker-a", "broker-b")
    return TopicRoute(
        "orders",
        TopicRouteData(
            broker_datas=[BrokerData(cluster="c", broker_name=name, broker_addrs={0: f"{name}:1"}) for name in names],
            queue_datas=[QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=6) for name in names],
        ),
    )


def test_faulty_broker_is_avoided_for_a_while() -> None:
    """Ten minutes after a failure; not after one that says nothing about the broker."""
    clock, route = Clock(), two_brokers()
    choice = QueueChoice(clock, avoids_faults=True)
    choice.note("broker-a", 0.0, LOST)
    choice.note("broker-b", 0.0, TooManyRequests("full"))
    assert {choice.next_queue(route).broker_name for _ in range(8)} == {"broker-b"}
    clock.now = 600.0
    assert {choice.next_queue(route).broker_name for _ in range(8)} == {"broker-a", "broker-b"}


def test_with_no_broker_available_the_faster_one_is_chosen() -> None:
    """Of two isolated brokers, the one with the shorter latency."""
    clock, route = Clock(), two_brokers()
    choice = QueueChoice(clock, avoids_faults=True)
    clock.now = 5.0
    choice.note("broker-a", 0.0, LOST)
    choice.note("broker-b", 4.0, LOST)
    assert {choice.next_queue(route).broker_name for _ in range(4)} == {"broker-b"}


def test_broker_without_the_topic_is_not_chosen() -> None:
    """It had the best entry in the fault table, which is then removed."""
    clock, route = Clock(), two_brokers()
    choice = QueueChoice(clock, avoids_faults=True)
    clock.now = 9.0
    for name, begun in (("gone", 8.9), ("broker-a", 0.0), ("broker-b", 4.0)):
        choice.note(name, begun, LOST)
    assert choice.next_queue(route).broker_name in {"broker-a", "broker-b"}
    assert {choice.next_queue(route).broker_name for _ in range(4)} == {"broker-b"}


def test_without_fault_tolerance_only_the_last_broker_is_skipped() -> None:
    """The fault table is not used."""
    choice, route = QueueChoice(Clock(), avoids_faults=False), two_brokers()
    choice.note("broker-a", 0.0, LOST)
    assert {choice.next_queue(route).broker_name for _ in range(8)} == {"broker-a", "broker-b"}
    assert {choice.next_queue(route, "broker-a").broker_name for _ in range(8)} == {"broker-b"}
