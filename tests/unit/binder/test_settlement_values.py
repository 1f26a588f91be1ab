"""Settlements with invalid values are refused when they are created."""

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
def test_invalid_settlement_value_is_refused(make: Callable[[], object], text: str) -> None:
    """The error has the field, the value, and what is expected."""
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
def test_listener_with_an_invalid_settlement_has_failed(
    ordered: str, settle: Callable[[Acknowledgment], object]
) -> None:
    """Its message and the later ones are retried, and the binding continues."""
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


def test_valid_settlement_is_accepted() -> None:
    """And derived classes."""

    class Later(timedelta):
        pass

    assert Requeue("so", after=Later(1)).after == timedelta(1)
    assert Requeue(after=timedelta(1), cause=KeyError()).after == timedelta(1)
