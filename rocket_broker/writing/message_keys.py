"""The limit of the number of a message's keys."""

from rocket_broker.limits.refusal import Refusal
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.properties import KEY_SEPARATOR

__all__ = ["MAX_KEYS", "check_keys"]

MAX_KEYS = 1_024
"""Maximum number of keys of a message. Each is hashed and gets an entry in the index, which takes some 6 µs."""


def check_keys(keys: str) -> None:
    """Check the number of a message's keys.

    Args:
        keys: The keys, separated by spaces.

    Raises:
        Refusal: The message has more than `MAX_KEYS` keys.
    """
    if len(keys) > MAX_KEYS and keys.count(KEY_SEPARATOR) >= MAX_KEYS:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message has {keys.count(KEY_SEPARATOR) + 1} keys, at most {MAX_KEYS} are indexed: give it fewer",
        )
