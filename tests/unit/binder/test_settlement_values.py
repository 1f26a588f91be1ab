"""Settlements with wrong values: refused where they are made, not by who carries them out."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from streamkit import Reject, Requeue
from streamkit.application import StreamApplication
from streamkit.binder.acknowledgment import Acknowledgment


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Requeue(after=5), "Requeue(after=5): expected timedelta or None"),  # type: ignore[arg-type]
        (lambda: Requeue(5), "Requeue(reason=5): expected str"),  # type: ignore[arg-type]
        (lambda: Reject(5), "Reject(reason=5): expected str"),  # type: ignore[arg-type]
        (lambda: Requeue(after="1s"), "Requeue(after='1s'): expected timedelta or None"),  # type: ignore[arg-type]
        (
            lambda: Requeue(cause="why"),  # type: ignore[arg-type]
            "Requeue(cause='why'): expected BaseException or None",
        ),
        (lambda: Reject(None), "Reject(reason=None): expected str"),  # type: ignore[arg-type]
        (
            lambda: Reject("no", cause="why"),  # type: ignore[arg-type]
            "Reject(cause='why'): expected BaseException or None",
        ),
    ],
)
def test_a_wrong_value_is_refused(make: Callable[[], object], text: str) -> None:
    """The error tells the field, the value, and what was expected."""
    with pytest.raises(TypeError) as refused:
        make()
    assert str(refused.value) == text


@pytest.mark.parametrize("ordered", ["false", "true"])
@pytest.mark.parametrize(
    "settle",
    [
        lambda acknowledgment: acknowledgment.requeue(5),
        lambda acknowledgment: acknowledgment.reject(None),
    ],
)
def test_a_listener_that_settles_wrongly_has_failed(ordered: str, settle: Callable[[Acknowledgment], object]) -> None:
    """Its message is tried again, and so are those behind it: nothing is lost, nothing stands still."""
    prefix = "spring.cloud.stream"
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            f"{prefix}.bindings.a.group": "g",
            f"{prefix}.rocketmq.bindings.a.consumer.orderly": ordered,
        },
    )
    seen: list[str] = []

    @app.stream_listener("a")
    async def listen(text: str, acknowledgment: Acknowledgment) -> None:
        seen.append(text)
        if len(seen) == 1:
            settle(acknowledgment)
        acknowledgment.accept()

    with app.test() as test:
        test.input("a").send("first", {"scst_partition": 0})
        test.input("a").send("second", {"scst_partition": 0})
        test.advance(hours=1)
        assert sorted(seen) == ["first", "first", "second"]


def test_what_is_right_is_taken() -> None:
    """Also what is derived from it."""

    class Later(timedelta):
        pass

    assert Requeue("so", after=Later(1)).after == timedelta(1)
    assert Requeue(after=timedelta(1), cause=KeyError()).after == timedelta(1)
