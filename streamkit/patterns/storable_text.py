"""Text that every database stores."""

__all__ = ["storable"]


def storable(text: str, length: int) -> str:
    """Return the beginning of a text; characters that a database refuses, NUL and lone surrogates, become `?`."""
    return text.encode(errors="replace").decode().replace("\0", "?")[:length]
