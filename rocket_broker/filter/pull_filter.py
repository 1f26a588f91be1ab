"""What a pull lets through.

::

    consume queue entry ──► tag codes ──► record ──► properties ──► to the consumer

Most pulls are decided by the entry alone. Only a pull with a filter on properties (SQL92) makes the broker
look into the messages themselves.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.properties import decode_stored_properties
from rocket_remoting.wire.record import record_properties

__all__ = ["EVERYTHING", "PropertyFilter", "PullFilter"]


class PropertyFilter(Protocol):
    """Decides by a message's properties; equal ones decide alike."""

    @property
    def cost(self) -> int:
        """How many comparisons a decision takes."""

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties is wanted."""

    def __hash__(self) -> int:
        """Filters are kept in sets."""


class PullFilter(NamedTuple):
    """A filter; equal ones let the same through.

    Attributes:
        codes: Hashes of the wanted tags, None for all.
        properties: The filter on properties, None for all.
    """

    codes: frozenset[int] | None
    properties: PropertyFilter | None = None

    @property
    def cost(self) -> int:
        """How many comparisons a decision takes."""
        return 1 if self.properties is None else self.properties.cost

    def wants_record(self, record: memoryview) -> bool:
        """Whether the filter on properties, which there must be, wants a message; one that is no record it doesn't."""
        assert self.properties is not None
        try:
            return self.properties.matches(decode_stored_properties(record_properties(record)))
        except RemoteProtocolError:
            return False


EVERYTHING = PullFilter(None)
