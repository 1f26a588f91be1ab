"""Versions of the protocol, which clients report as positions in Apache's list of releases, and brokers as names."""

__all__ = ["version_of_name", "version_text"]

_OF_4_0_0 = 213
"""The position of 4.0.0. From there on a release and the snapshot of the next one take turns, up to 5.9.9."""


def version_text(position: int) -> str:
    """Return a version such as ``4.9.7``, or ``5.3.3-SNAPSHOT``, by its position."""
    if position < _OF_4_0_0:
        return "before 4.0.0"
    number, is_snapshot = divmod(position - _OF_4_0_0, 2)
    release = 400 + number + is_snapshot
    if release > 599:
        return "after 5.9.9"
    return ".".join(str(release)) + ("-SNAPSHOT" if is_snapshot else "")


def version_of_name(name: str) -> str:
    """Return a version such as ``4.9.7`` by the name that brokers report, such as ``V4_9_7``."""
    return name.removeprefix("V").replace("_", ".")
