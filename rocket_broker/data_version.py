"""The version of a table: when and how often it changed. Equal versions mean equal tables."""

from rocket_remoting.bodies import DataVersion

from rocket_remoting.clock import Clock

__all__ = ["next_version"]


def next_version(version: DataVersion, clock: Clock) -> DataVersion:
    """Return the version after one more change."""
    return DataVersion(
        timestamp=clock.now_ms(), counter=version.counter + 1, state_version=version.state_version
    )
