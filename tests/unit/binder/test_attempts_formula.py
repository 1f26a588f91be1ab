"""The number and the times of attempts."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.binder.attempts import BackOff, RetryPolicy, after_failure, after_requeue, causes, unwrapped
from streamkit.binder.delivery import Delivery, parse_delay_levels
from streamkit.errors import AllHandlersFailed, MessageConversionError, MessageHandlingError
from streamkit.settlement import Reject, Requeue


def test_pauses_double_up_to_the_maximum() -> None:
    """1, 2, 4, 8, then 10 seconds."""
    assert [BackOff().pause(failures) for failures in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@given(st.integers(1, 10**6), st.floats(0, 1e6), st.floats(1, 100), st.floats(0, 1e6))
def test_pause_never_exceeds_the_maximum(failures: int, initial: float, multiplier: float, cap: float) -> None:
    """After any number of failures, without an overflow."""
    assert 0 <= BackOff(initial, multiplier, cap).pause(failures) <= cap


def test_first_delivery_has_all_attempts_and_each_redelivery_one() -> None:
    """deliveryAttempt counts across deliveries."""
    policy = RetryPolicy(max_attempts=3)
    assert [list(policy.calls(redeliveries)) for redeliveries in range(3)] == [[1, 2, 3], [4], [5]]


@pytest.mark.parametrize(
    ("delivery", "limit"),
    [
        (Delivery(), 16),
        (Delivery(max_reconsume_times=-1), 16),
        (Delivery(max_reconsume_times=0), 0),
        (Delivery(max_reconsume_times=5), 5),
        (Delivery(ordered=True), None),
        (Delivery(ordered=True, max_reconsume_times=-1), None),
        (Delivery(ordered=True, max_reconsume_times=5), 5),
        (Delivery(broadcast=True), 0),
    ],
)
def test_default_redelivery_limit_depends_on_the_mode(delivery: Delivery, limit: int | None) -> None:
    """Unset or negative: 16 when concurrent, unlimited when ordered; broadcasting has no redelivery."""
    assert delivery.redelivery_limit == limit


def test_redelivery_delays_follow_the_table_from_level_three() -> None:
    """10 s, 30 s, 1 min, ..., 2 h, and 2 h for all later ones."""
    seconds = [Delivery().redelivery_delay(times).total_seconds() for times in range(18)]
    assert seconds == [
        10,
        30,
        60,
        120,
        180,
        240,
        300,
        360,
        420,
        480,
        540,
        600,
        1200,
        1800,
        *[3600] * 1,
        *[7200] * 3,
    ]


def test_levels_outside_the_table_are_clamped() -> None:
    """Level 0 is no delay; above the last one it is the last one."""
    assert [Delivery().level_delay(level).total_seconds() for level in (0, 1, 18, 19)] == [0, 1, 7200, 7200]


def test_fixed_level_and_ordered_queue_have_their_own_delay() -> None:
    """A positive level applies each time; an ordered queue is suspended."""
    assert Delivery(redelivery_level=5).redelivery_delay(7) == timedelta(minutes=1)
    assert Delivery(ordered=True, suspend=timedelta(seconds=3)).redelivery_delay(7) == timedelta(seconds=3)


def test_failure_is_retried_until_the_limit() -> None:
    """Then it becomes a dead letter with its cause."""
    cause = ValueError("why")
    delivery = Delivery(max_reconsume_times=2)
    assert after_failure(delivery, 1, cause, True) == Requeue("ValueError: why", cause=cause)
    assert after_failure(delivery, 2, cause, True) == Reject(
        "given up after 2 redeliveries; ValueError: why", cause=cause
    )


def test_non_retryable_failure_is_rejected_at_once() -> None:
    """Whatever the limit."""
    cause = ValueError("why")
    assert after_failure(Delivery(), 0, cause, False) == Reject("ValueError: why", cause=cause)


def test_requeue_counts_as_a_redelivery() -> None:
    """A listener that always requeues reaches the limit."""
    wanted = Requeue(after=timedelta(seconds=1))
    assert after_requeue(Delivery(), 15, wanted) is wanted
    assert isinstance(after_requeue(Delivery(), 16, wanted), Reject)


@given(st.integers(0, 2**40))
def test_ordered_queue_retries_for_ever(redeliveries: int) -> None:
    """Unless a limit was set; the setting that disables redelivery applies only to concurrent mode."""
    failed = after_failure(Delivery(ordered=True, redelivery_level=-1), redeliveries, ValueError("why"), True)
    assert isinstance(failed, Requeue)


def test_negative_level_disables_redelivery() -> None:
    """In concurrent mode a failure is a dead letter at once; level 0 means the table."""
    (off, table) = (after_failure(Delivery(redelivery_level=level), 0, ValueError(), True) for level in (-1, 0))
    assert isinstance(off, Reject)
    assert off.reason.startswith("redelivery is turned off for this binding")
    assert isinstance(table, Requeue)


def test_nearest_class_decides_and_then_the_causes() -> None:
    """Subclasses count; causes are consulted if the exception itself matches nothing."""
    policy = RetryPolicy(retryable={ValueError: False, UnicodeError: True})
    assert not policy.is_retryable(ValueError())
    assert policy.is_retryable(UnicodeError())
    assert policy.is_retryable(KeyError())
    chained = KeyError()
    chained.__cause__ = ValueError()
    assert not policy.is_retryable(chained)


def wrapped(cause: Exception) -> MessageHandlingError:
    """Return a listener's exception as its channel raises it."""
    error = MessageHandlingError("channel")
    error.__cause__ = cause
    return error


def test_rule_for_all_exceptions_ignores_the_channels_wrapper() -> None:
    """All but one kind can be excluded or included."""
    policy = RetryPolicy(retryable={Exception: False, ConnectionError: True})
    assert policy.is_retryable(wrapped(ConnectionError()))
    assert not policy.is_retryable(wrapped(ValueError()))
    assert not policy.is_retryable(ValueError())


def test_exception_group_is_retryable_if_all_its_members_are() -> None:
    """As from a TaskGroup; of several handlers' errors, one retryable suffices."""
    policy = RetryPolicy(retryable={ValueError: False})
    both = [ValueError(), KeyError()]
    assert not policy.is_retryable(wrapped(ExceptionGroup("", both)))
    assert policy.is_retryable(wrapped(ExceptionGroup("", [OSError(), KeyError()])))
    assert not policy.is_retryable(ExceptionGroup("", [ExceptionGroup("", both)]))
    assert policy.is_retryable(AllHandlersFailed("", None, both))
    assert not policy.is_retryable(AllHandlersFailed("", None, [ValueError()]))
    assert not RetryPolicy(retryable={ExceptionGroup: False}).is_retryable(ExceptionGroup("", [KeyError()]))


def test_cyclic_groups_and_causes_terminate() -> None:
    """As when a member of a group is raised from the group."""
    member = KeyError()
    member.__cause__ = ExceptionGroup("", [member, OSError()])
    assert RetryPolicy().is_retryable(member)
    assert not RetryPolicy(default_retryable=False).is_retryable(member)


def test_conversion_error_is_not_retried_unless_listed() -> None:
    """The same bytes fail the same way."""
    assert not RetryPolicy().is_retryable(MessageConversionError("no"))
    assert RetryPolicy(retryable={MessageConversionError: True}).is_retryable(MessageConversionError("no"))


def test_only_the_channels_own_wrapper_is_removed() -> None:
    """An exception that the listener raised from another stays what it is."""
    raised = KeyError("outer")
    raised.__cause__ = ValueError("inner")
    assert unwrapped(wrapped(raised)) is raised


def test_cyclic_causes_terminate() -> None:
    """Whatever user code did to them."""
    error = ValueError()
    error.__cause__ = error
    assert list(causes(error)) == [error]


def test_invalid_delay_table_says_what_is_expected() -> None:
    """Entries are numbers with a unit."""
    with pytest.raises(ValueError, match="expected entries such as 1s 10m 2h"):
        parse_delay_levels("1s soon")
