"""The recall handle of a timed message, as 5.3 sends it to the message's producer.

::

    base64url of    v1 <topic> <broker name> <TIMER_OUT_MS + 1> <UNIQ_KEY>
"""

import base64
import binascii
from typing import NamedTuple

__all__ = ["RecallHandle"]

_VERSION = "v1"


class RecallHandle(NamedTuple):
    """The decoded handle: topic, broker name, due time in milliseconds since 1970, and unique key of the message."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_key: str

    def encode(self) -> str:
        """Return the handle as text."""
        text = " ".join((_VERSION, self.topic, self.broker_name, str(self.deliver_ms), self.unique_key))
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> "RecallHandle | None":
        """Return the decoded handle; None if the text is not a handle."""
        try:
            version, topic, broker_name, deliver_ms, unique_key, *_ = base64.urlsafe_b64decode(text).decode().split(" ")
            return cls(topic, broker_name, int(deliver_ms), unique_key) if version == _VERSION else None
        except (ValueError, binascii.Error):
            return None
