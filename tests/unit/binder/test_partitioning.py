"""The partition of a key, computed as in Java."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.binder.partitioning import Partitioner, explicit_partition, partition_of
from streamkit.errors import MessageDeliveryError
from streamkit.expression.java_hash import java_hash
from streamkit.messaging.message import Message


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("N14228", -2015042201),
        ("polygenelubricants", -(2**31)),
        ("😀", 1772899),
        ("Grüße", 69215351),
        (42, 42),
        (-1, -1),
        (2**40, 256),
        (-(2**40), -256),
        (2**31 - 1, 2**31 - 1),
        (2**31, -(2**31)),
        (-(2**31), -(2**31)),
        (-(2**31) - 1, -(2**31)),
        (True, 1231),
        (False, 1237),
    ],
)
def test_hashes_equal_javas(key: object, expected: int) -> None:
    """The values of `hashCode()`."""
    assert java_hash(key) == expected


def test_minimum_hash_counts_as_zero() -> None:
    """|Integer.MIN_VALUE| is negative in Java, and 0 for the binder."""
    assert partition_of("polygenelubricants", 7) == 0


@given(st.text(), st.integers(1, 1000))
def test_every_key_has_a_valid_partition(key: str, count: int) -> None:
    """Between 0 and the number of partitions."""
    assert 0 <= partition_of(key, count) < count


def test_override_header_takes_precedence_and_a_missing_key_is_an_error() -> None:
    """Header scst_partitionOverride is the partition, whatever the key."""
    partitioner = Partitioner(lambda message: message.headers.get("key"))
    assert partitioner.partition(Message("x", {"key": "a"}), 4) == 97 % 4
    assert partitioner.partition(Message("x", {"scst_partitionOverride": "3"}), 4) == 3
    with pytest.raises(MessageDeliveryError, match="partition key"):
        partitioner.partition(Message("x"), 4)


def test_partition_header_must_be_a_number() -> None:
    """Otherwise the send fails with a short error, however long the header."""
    assert explicit_partition(Message("x")) is None
    assert explicit_partition(Message("x", {"scst_partition": 2})) == 2
    for wrong in ("two", "9" * 5000):
        with pytest.raises(MessageDeliveryError, match="expected the number of a partition") as refused:
            explicit_partition(Message("x", {"scst_partition": wrong}))
        assert len(str(refused.value)) < 300


@pytest.mark.parametrize("wrong", [-1, "-1", 1.0, "", "٣.٥"])
def test_partition_header_must_be_a_non_negative_integer(wrong: object) -> None:
    """No negative number, fraction or empty value."""
    for name in ("scst_partition", "scst_partitionOverride"):
        with pytest.raises(MessageDeliveryError, match=name):
            explicit_partition(Message("x", {name: wrong}))


@pytest.mark.parametrize("chosen", [None, "1", 1.5])
def test_selector_must_return_an_integer(chosen: object) -> None:
    """The error has the result and the key."""
    partitioner = Partitioner(lambda message: "red", lambda key, count: chosen)  # type: ignore[arg-type,return-value]
    with pytest.raises(MessageDeliveryError) as refused:
        partitioner.partition(Message(b""), 4)
    assert str(refused.value) == (f"the partition selector gives {chosen!r} for key 'red': expected a whole number")
