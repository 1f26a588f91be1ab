"""How many keys a message may have."""

from rocket_broker.limits.refusal import Refusal
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.properties import KEY_SEPARATOR

__all__ = ["MAX_KEYS", "check_keys"]

MAX_KEYS = 1_024
"""Of a message. Each is hashed and gets an entry in the index, which takes some 6 µs."""


def check_keys(keys: str) -> None:
    """Return if a message may have these keys, separated by spaces.

    Raises:
        Refusal: They are too many.
    """
    if len(keys) > MAX_KEYS and keys.count(KEY_SEPARATOR) >= MAX_KEYS:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message has {keys.count(KEY_SEPARATOR) + 1} keys, at most {MAX_KEYS} are indexed: give it fewer",
        )
