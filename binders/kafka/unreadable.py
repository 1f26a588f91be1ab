"""Unreadable bytes of a partition, as the value of a record."""


class Unreadable(bytes):
    """Bytes of a partition that cannot be read as records; the value of a record in their place.

    Attributes:
        error: Why the bytes cannot be read.
    """

    error: Exception

    @classmethod
    def of(cls, data: bytes | memoryview, error: Exception) -> "Unreadable":
        """Return bytes with the error that says why they cannot be read."""
        found = cls(data)
        found.error = error
        return found
