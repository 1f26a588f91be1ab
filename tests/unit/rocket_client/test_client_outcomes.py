"""What a listener may answer, and what it may not: a member goes on in either case."""

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
    """An object whose text cannot be made."""

    def __repr__(self) -> str:
        raise LookupError("no text")


class NotAnException(BaseException):
    """What pytest.fail raises is such a thing, for one."""


def wrong_value() -> object:
    """An outcome nobody can carry out."""
    return Suspend("x")  # type: ignore[arg-type]


def unprintable() -> object:
    """No outcome, and no text to tell of it."""
    return Unprintable()


def no_exception() -> object:
    """Raises what `except Exception` does not see."""
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
def test_an_outcome_with_a_wrong_value_is_refused_where_it_is_made(
    kind: Callable[..., object], name: str, value: object
) -> None:
    """The error tells the field, and what was expected."""
    with pytest.raises(TypeError) as refused:
        kind(**{name: value})
    assert str(refused.value).startswith(f"{kind.__name__}({name}={value!r}): expected ")


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("first", [wrong_value, unprintable, no_exception])
def test_whatever_a_call_gives_the_messages_behind_it_are_heard(
    virtual: VirtualTime, orderly: bool, first: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    """It is a failure of that call: sent back, or tried again."""

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
