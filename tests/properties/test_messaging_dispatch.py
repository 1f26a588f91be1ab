"""Dispatching, for arbitrary handlers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import AllHandlersFailed, MessageHandlingError, NoSubscriberError
from streamkit.messaging import BroadcastingDispatcher, Message, RoundRobin, UnicastingDispatcher
from streamkit.messaging.handler import drive

FAILING = st.lists(st.booleans(), max_size=5)
"""For each handler, whether it fails."""
FAILURES = (NoSubscriberError, MessageHandlingError, AllHandlersFailed)
"""What is raised when no handler, one, or more than one was there and failed."""


def handlers(failing, calls):
    def make(number, fails):
        def handle(message):
            calls.append(number)
            if fails:
                raise ValueError(number)

        return handle

    return [make(number, fails) for number, fails in enumerate(failing)]


@given(FAILING, st.booleans(), st.integers(1, 8))
def test_unicast_stops_at_the_first_success(failing, balanced, messages):
    """From the handler whose turn it is, calling each one before it."""
    calls = []
    dispatcher = UnicastingDispatcher("c", load_balancing=RoundRobin() if balanced else None)
    for handler in handlers(failing, calls):
        dispatcher.add_handler(handler)
    for turn in range(messages):
        calls.clear()
        start = turn % len(failing) if balanced and failing else 0
        order = [*range(start, len(failing)), *range(start)]
        winner = next((n for n in order if not failing[n]), None)
        expected = order if winner is None else order[: order.index(winner) + 1]
        if winner is not None:
            assert drive(dispatcher.dispatch(Message("a")))
        else:
            with pytest.raises(FAILURES[min(len(failing), 2)]):
                drive(dispatcher.dispatch(Message("a")))
        assert calls == expected


@given(FAILING, st.booleans())
def test_broadcast_calls_all_in_order(failing, ignoring):
    """Up to the first failure unless failures are ignored."""
    calls = []
    dispatcher = BroadcastingDispatcher("c", ignore_failures=ignoring)
    for handler in handlers(failing, calls):
        dispatcher.add_handler(handler)
    stop = len(failing) if ignoring or True not in failing else failing.index(True) + 1
    if ignoring or True not in failing:
        assert drive(dispatcher.dispatch(Message("a")))
    else:
        with pytest.raises(MessageHandlingError):
            drive(dispatcher.dispatch(Message("a")))
    assert calls == list(range(stop))
