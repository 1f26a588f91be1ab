"""A snapshot of a binding for another process: its destination, and the settings behind it.

::

    driver                                       Spark's Python processes
    application ─► snapshot_of(app, "orders") ─► ChannelSnapshot, pickled: address, topic, content type, settings

Nothing here imports PySpark.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from streamkit.binder.spark_format import SparkFormat
from streamkit.config.environment import Environment
from streamkit.errors import ConfigurationError, StreamkitError
from streamkit.messaging.converter import DEFAULT_CONTENT_TYPE

if TYPE_CHECKING:
    from streamkit.application import StreamApplication
    from streamkit.binder.binder import Binder

__all__ = ["ChannelSnapshot", "Direction", "snapshot_of"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Direction:
    """A binding in one direction: as an input or as an output.

    Attributes:
        format: The binder's Spark format for this direction, if any.
        refusal: The error in the binding's settings for this direction, if any.
    """

    format: SparkFormat | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class ChannelSnapshot:
    """The destination and settings of one binding.

    Attributes:
        binding: Its name.
        binder: The name of its binder.
        type: The binder's type.
        content_type: The content type of its payloads.
        is_local: Whether its messages exist in the application's process only.
        source: The binding as an input.
        sink: The binding as an output.
        environment: The settings of its application, for a process that opens the binding.
    """

    binding: str
    binder: str
    type: str
    content_type: str
    is_local: bool
    source: Direction
    sink: Direction
    environment: Environment


def snapshot_of(app: "StreamApplication", binding: str) -> ChannelSnapshot:
    """Return a snapshot of a binding; of a running application, with the address that it connected to.

    Raises:
        ConfigurationError: There is no such binding, or its binder cannot be made.
    """
    factory = app.container.binding_factory()
    if not factory.settings.is_configured(binding):
        raise factory.settings.unknown(binding, "format 'streamkit'", ())
    channel = app.channel(binding)
    binders: list[Binder] = []

    def source() -> SparkFormat | None:
        bound = factory.input(binding, channel, manual=False)
        binders.append(bound.binder.binder)
        return bound.binder.binder.spark_source(bound.consumer_destinations[0])

    def sink() -> SparkFormat | None:
        bound = factory.output(binding, channel)
        binders.append(bound.binder.binder)
        return bound.binder.binder.spark_sink(bound.destination)

    as_source, as_sink = _direction(source), _direction(sink)
    if not binders:
        raise ConfigurationError(as_source.refusal or f"binding {binding!r} cannot be made")
    return ChannelSnapshot(
        binding,
        binders[0].name,
        binders[0].type,
        factory.settings.properties(binding).content_type or DEFAULT_CONTENT_TYPE,
        binders[0].is_local,
        as_source,
        as_sink,
        app.environment.portable(),
    )


def _direction(find: Callable[[], SparkFormat | None]) -> Direction:
    """Return a direction, with its error: few bindings work in both, so an error is raised when the direction is
    used."""
    try:
        return Direction(find())
    except StreamkitError as error:
        return Direction(refusal=str(error))
