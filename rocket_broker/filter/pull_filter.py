"""The filter of a pull request.

::

    consume queue entry ──► tag codes ──► record ──► properties ──► to the consumer

Most pull requests are filtered by the consume queue's entries alone. Only a filter on properties (SQL92) makes the
broker read the records themselves.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.properties import decode_stored_properties
from rocket_remoting.wire.record import record_properties

__all__ = ["EVERYTHING", "PropertyFilter", "PullFilter"]


class PropertyFilter(Protocol):
    """Filters by a message's properties; equal filters match the same messages."""

    @property
    def cost(self) -> int:
        """Number of comparisons that a decision takes."""

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message with these properties matches."""

    def __hash__(self) -> int:
        """Return the hash; filters are keys of dicts."""


class PullFilter(NamedTuple):
    """A filter; equal filters match the same messages.

    Attributes:
        codes: Hash codes of the wanted tags; None for all tags.
        properties: The filter on properties; None for all messages.
    """

    codes: frozenset[int] | None
    properties: PropertyFilter | None = None

    @property
    def cost(self) -> int:
        """Number of comparisons that a decision takes."""
        return 1 if self.properties is None else self.properties.cost

    def wants_record(self, record: memoryview) -> bool:
        """Return whether the filter on properties, which must exist, matches a record; False if that is malformed."""
        assert self.properties is not None
        try:
            return self.properties.matches(decode_stored_properties(record_properties(record)))
        except RemoteProtocolError:
            return False


EVERYTHING = PullFilter(None)
