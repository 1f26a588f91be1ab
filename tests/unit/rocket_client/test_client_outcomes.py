"""Listener results, valid and invalid; the consumer continues in each case."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rocket_client import Reject, RetryLater, Success, Suspend
from rocket_remoting import ResponseCode
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.consumer_script import ConsumerScript, play, pulled, record


class Unprintable:
    """An object whose `repr` raises an error."""

    def __repr__(self) -> str:
        raise LookupError("no text")


class NotAnException(BaseException):
    """A BaseException that is no Exception, such as that of pytest.fail."""


def wrong_value() -> object:
    """Return an outcome with an invalid value."""
    return Suspend("x")  # type: ignore[arg-type]


def unprintable() -> object:
    """Return an object that is no outcome and has no `repr`."""
    return Unprintable()


def no_exception() -> object:
    """Raise an error that `except Exception` does not catch."""
    raise NotAnException


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (Success, "ack_index", "2"),
        (RetryLater, "delay_level", timedelta(seconds=10)),
        (RetryLater, "cause", 5),
        (Suspend, "seconds", "x"),
        (Suspend, "seconds", timedelta(seconds=10)),
        (Suspend, "cause", 5),
        (Reject, "cause", 5),
    ],
)
def test_outcome_with_an_invalid_value_is_refused_at_creation(
    kind: Callable[..., object], name: str, value: object
) -> None:
    """The error names the field and what is expected."""
    with pytest.raises(TypeError) as refused:
        kind(**{name: value})
    assert str(refused.value).startswith(f"{kind.__name__}({name}={value!r}): expected ")


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("first", [wrong_value, unprintable, no_exception])
def test_invalid_listener_result_is_a_failed_attempt(
    virtual: VirtualTime, orderly: bool, first: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    """The message is sent back or retried, and later messages are delivered."""

    async def scene(script: ConsumerScript) -> None:
        async def says() -> Any:
            return first() if len(script.heard) == 1 else None

        script.says = says
        async with asyncio.timeout(600):
            while not script.heard or script.heard[-1].body != b"8":  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(1)
        await script.consumer.shutdown()
        assert script.commits[-1] == 9
        assert "kitchen: the listener failed with 1 message(s) of topic orders" in caplog.text

    play(virtual, scene, pulled(ResponseCode.SUCCESS, 9, record(7) + record(8)), committed=7, orderly=orderly)
