"""Queue selectors choose the same queues as Java's clients."""

import pytest

from rocket_client.core.selectors import java_hash_code, select_by_hash, select_by_random
from rocket_remoting.wire.message import Message, MessageQueue

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(5)]
MESSAGE = Message("orders", b"x")


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("", 0),
        ("order-7", -1207111304),
        ("N12345", -2015100763),
        (True, 1231),
        (False, 1237),
        (42, 42),
        (-5, -5),
        (2**31 - 1, 2**31 - 1),
        (-(2**31), -(2**31)),
        (2**31, -(2**31)),
        (10_000_000_000, 1410065410),
        (-(2**31) - 1, -(2**31)),
    ],
)
def test_hash_codes_are_javas(value: object, code: int) -> None:
    """For String, Boolean, Integer, and Long beyond 32 bits."""
    assert java_hash_code(value) == code


def test_hash_code_modulo_size_selects_the_queue() -> None:
    """|hashCode| mod size, for negative ones too."""
    assert select_by_hash(QUEUES, MESSAGE, 7) == QUEUES[2]
    assert select_by_hash(QUEUES, MESSAGE, -7) == QUEUES[2]
    assert select_by_hash(QUEUES, MESSAGE, -(2**31)) == QUEUES[3]


def test_argument_without_a_java_hash_code_is_refused() -> None:
    """A float or an object would distribute one key over several queues."""
    with pytest.raises(TypeError, match="use a str or an int"):
        select_by_hash(QUEUES, MESSAGE, 1.5)


def test_random_selector_chooses_any_queue() -> None:
    """Within the list."""
    assert select_by_random(QUEUES, MESSAGE, None) in QUEUES
