"""How often and when a message is tried, as numbers."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.binder.attempts import BackOff, RetryPolicy, after_failure, after_requeue, causes, unwrapped
from streamkit.binder.delivery import Delivery, parse_delay_levels
from streamkit.errors import AllHandlersFailed, MessageConversionError, MessageHandlingError
from streamkit.settlement import Reject, Requeue


def test_pauses_double_up_to_the_cap() -> None:
    """1, 2, 4, 8, then 10 seconds."""
    assert [BackOff().pause(failures) for failures in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@given(st.integers(1, 10**6), st.floats(0, 1e6), st.floats(1, 100), st.floats(0, 1e6))
def test_no_pause_is_longer_than_the_cap(failures: int, initial: float, multiplier: float, cap: float) -> None:
    """However many failures there were, and without an overflow."""
    assert 0 <= BackOff(initial, multiplier, cap).pause(failures) <= cap


def test_the_first_delivery_has_all_attempts_and_each_redelivery_one() -> None:
    """deliveryAttempt counts on over all deliveries."""
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
def test_the_limit_of_redeliveries(delivery: Delivery, limit: int | None) -> None:
    """Unset or negative is 16 when concurrent and no bound when ordered; broadcasting has none."""
    assert delivery.redelivery_limit == limit


def test_redelivery_delays_follow_the_table_from_level_three() -> None:
    """10 s, 30 s, 1 min, ..., 2 h, and 2 h for whatever comes after."""
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


def test_levels_beyond_the_table_are_its_ends() -> None:
    """Level 0 is no delay; above the last one it is the last one."""
    assert [Delivery().level_delay(level).total_seconds() for level in (0, 1, 18, 19)] == [0, 1, 7200, 7200]


def test_a_fixed_level_and_an_ordered_queue_have_their_own_delay() -> None:
    """A positive level is taken each time; an ordered queue is suspended."""
    assert Delivery(redelivery_level=5).redelivery_delay(7) == timedelta(minutes=1)
    assert Delivery(ordered=True, suspend=timedelta(seconds=3)).redelivery_delay(7) == timedelta(seconds=3)


def test_a_failure_becomes_a_retry_until_the_limit() -> None:
    """The last redelivery's failure is the dead letter, with the cause."""
    cause = ValueError("why")
    delivery = Delivery(max_reconsume_times=2)
    assert after_failure(delivery, 1, cause, True) == Requeue("ValueError: why", cause=cause)
    assert after_failure(delivery, 2, cause, True) == Reject(
        "given up after 2 redeliveries; ValueError: why", cause=cause
    )


def test_what_is_not_retryable_is_rejected_at_once() -> None:
    """Whatever the limit."""
    cause = ValueError("why")
    assert after_failure(Delivery(), 0, cause, False) == Reject("ValueError: why", cause=cause)


def test_a_requeue_counts_as_a_redelivery() -> None:
    """A listener that requeues for ever ends at the limit."""
    wanted = Requeue(after=timedelta(seconds=1))
    assert after_requeue(Delivery(), 15, wanted) is wanted
    assert isinstance(after_requeue(Delivery(), 16, wanted), Reject)


@given(st.integers(0, 2**40))
def test_an_ordered_queue_tries_for_ever(redeliveries: int) -> None:
    """Unless a limit was set; what turns redelivery off is of the concurrent mode."""
    failed = after_failure(Delivery(ordered=True, redelivery_level=-1), redeliveries, ValueError("why"), True)
    assert isinstance(failed, Requeue)


def test_a_negative_level_turns_redelivery_off() -> None:
    """A failure in concurrent mode is a dead letter at once; level 0 is the table."""
    (off, table) = (after_failure(Delivery(redelivery_level=level), 0, ValueError(), True) for level in (-1, 0))
    assert isinstance(off, Reject)
    assert off.reason.startswith("redelivery is turned off for this binding")
    assert isinstance(table, Requeue)


def test_the_nearest_class_and_then_the_causes_decide() -> None:
    """Subclasses count; what an exception was raised from counts if itself says nothing."""
    policy = RetryPolicy(retryable={ValueError: False, UnicodeError: True})
    assert not policy.is_retryable(ValueError())
    assert policy.is_retryable(UnicodeError())
    assert policy.is_retryable(KeyError())
    chained = KeyError()
    chained.__cause__ = ValueError()
    assert not policy.is_retryable(chained)


def wrapped(cause: Exception) -> MessageHandlingError:
    """A listener's exception as its channel raises it."""
    error = MessageHandlingError("channel")
    error.__cause__ = cause
    return error


def test_what_is_said_of_every_exception_is_not_said_of_the_channel_s_wrapping() -> None:
    """All but one kind can be excluded, or included."""
    policy = RetryPolicy(retryable={Exception: False, ConnectionError: True})
    assert policy.is_retryable(wrapped(ConnectionError()))
    assert not policy.is_retryable(wrapped(ValueError()))
    assert not policy.is_retryable(ValueError())


def test_a_group_is_retried_if_all_in_it_is() -> None:
    """As a TaskGroup raises; what several handlers raised in turn, if any of it is."""
    policy = RetryPolicy(retryable={ValueError: False})
    both = [ValueError(), KeyError()]
    assert not policy.is_retryable(wrapped(ExceptionGroup("", both)))
    assert policy.is_retryable(wrapped(ExceptionGroup("", [OSError(), KeyError()])))
    assert not policy.is_retryable(ExceptionGroup("", [ExceptionGroup("", both)]))
    assert policy.is_retryable(AllHandlersFailed("", None, both))
    assert not policy.is_retryable(AllHandlersFailed("", None, [ValueError()]))
    assert not RetryPolicy(retryable={ExceptionGroup: False}).is_retryable(ExceptionGroup("", [KeyError()]))


def test_a_ring_of_groups_and_causes_ends() -> None:
    """As who raises one of a group from the group makes it."""
    member = KeyError()
    member.__cause__ = ExceptionGroup("", [member, OSError()])
    assert RetryPolicy().is_retryable(member)
    assert not RetryPolicy(default_retryable=False).is_retryable(member)


def test_a_conversion_error_is_not_retried_unless_listed() -> None:
    """The same bytes fail in the same way."""
    assert not RetryPolicy().is_retryable(MessageConversionError("no"))
    assert RetryPolicy(retryable={MessageConversionError: True}).is_retryable(MessageConversionError("no"))


def test_only_the_channel_s_own_wrapping_is_taken_off() -> None:
    """What the listener raised from something else stays what it raised."""
    raised = KeyError("outer")
    raised.__cause__ = ValueError("inner")
    assert unwrapped(wrapped(raised)) is raised


def test_a_circle_of_causes_ends() -> None:
    """Looking for causes terminates whatever user code did to them."""
    error = ValueError()
    error.__cause__ = error
    assert list(causes(error)) == [error]


def test_a_wrong_table_of_delays_says_what_is_expected() -> None:
    """Entries are numbers with a unit."""
    with pytest.raises(ValueError, match="expected entries such as 1s 10m 2h"):
        parse_delay_levels("1s soon")
