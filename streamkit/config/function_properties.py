"""Settings of functions and of the polling of suppliers, with Spring's names.

`spring.cloud.function.*` is from Spring Cloud Function. `spring.integration.poller.*` is from Spring Boot; its older
prefix is `spring.cloud.stream.poller.*`.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, Final, TypeVar

from streamkit.config.durations import Milliseconds, Positive
from streamkit.config.setting_limits import Accepted
from streamkit.config.setting_values import After
from streamkit.config.settings_model import SettingsModel, setting

__all__ = [
    "CloudFunctionProperties",
    "PollerProperties",
    "RoutingProperties",
    "StreamFunctionProperties",
    "TimeUnit",
]

V = TypeVar("V")

_NO_SCAN: Final = Accepted("functions are registered with the application or decorated, not searched for")
_NO_WEB: Final = Accepted("functions are called for messages only")


class TimeUnit(Enum):
    """The unit of plain numbers."""

    NANOSECONDS = "NANOSECONDS"
    MICROSECONDS = "MICROSECONDS"
    MILLISECONDS = "MILLISECONDS"
    SECONDS = "SECONDS"
    MINUTES = "MINUTES"
    HOURS = "HOURS"
    DAYS = "DAYS"


_ABBREVIATED: Final = {
    TimeUnit.NANOSECONDS: "ns",
    TimeUnit.MICROSECONDS: "us",
    TimeUnit.MILLISECONDS: "ms",
    TimeUnit.SECONDS: "s",
    TimeUnit.MINUTES: "m",
    TimeUnit.HOURS: "h",
    TimeUnit.DAYS: "d",
}


def _checked_cron(text: str) -> str:
    from streamkit.config.cron import CronExpression

    CronExpression(text)
    return text


class PollerProperties(SettingsModel):
    """How suppliers are polled; a setting that a binding lacks is taken from `spring.integration.poller.*`."""

    fixed_delay: Annotated[Milliseconds, Positive] | None = None
    """The pause between the end of a poll and the next poll. Without it, `fixed-rate` and `cron`: 1s."""
    fixed_rate: Annotated[Milliseconds, Positive] | None = None
    """The time from the start of a poll to the start of the next, instead of `fixed-delay`."""
    cron: Annotated[str, After(_checked_cron)] | None = None
    """The times of polls, instead of `fixed-delay`: a cron expression with Spring's six fields, in local time."""
    initial_delay: Milliseconds | None = None
    """The pause before the first poll. Unset: no pause. With `cron` it is not used."""
    max_messages_per_poll: int | None = None
    """The most calls of the supplier in a poll, which also ends when it returns None. -1: no limit. Unset: 1."""
    time_unit: TimeUnit = TimeUnit.MILLISECONDS
    """The unit of durations that are plain numbers."""
    receive_timeout: Annotated[
        Milliseconds | None, Accepted("a poll calls the supplier and does not wait at a queue")
    ] = None
    """How long a poll waits for a message."""

    @classmethod
    def _prepared(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        """Append the unit to plain numbers."""
        unit = values.get("time_unit")
        if not isinstance(unit, TimeUnit):
            return values
        timed = ("fixed_delay", "fixed_rate", "initial_delay")
        return {
            key: f"{value}{_ABBREVIATED[unit]}" if key in timed and _is_plain(value) else value
            for key, value in values.items()
        }

    def _check(self) -> None:
        """Refuse several of the settings that say when to poll."""
        asked = [name for name in ("cron", "fixed_delay", "fixed_rate") if getattr(self, name) is not None]
        if len(asked) > 1:
            raise ValueError(f"{' and '.join(asked)} exclude each other: set one of them")

    def over(self, weaker: "PollerProperties") -> "PollerProperties":
        """Return these settings, completed by those of ``weaker``.

        ``cron``, ``fixed_delay`` and ``fixed_rate`` are taken together from one of the two, because they exclude each
        other.
        """
        timed = self if self._is_timed else weaker
        return self.model_copy(
            update={
                "cron": timed.cron,
                "fixed_delay": timed.fixed_delay,
                "fixed_rate": timed.fixed_rate,
                "initial_delay": _first(self.initial_delay, weaker.initial_delay),
                "max_messages_per_poll": _first(self.max_messages_per_poll, weaker.max_messages_per_poll),
            }
        )

    @property
    def _is_timed(self) -> bool:
        return any(each is not None for each in (self.cron, self.fixed_delay, self.fixed_rate))


def _first(own: V | None, weaker: V | None) -> V | None:
    return weaker if own is None else own


def _is_plain(value: object) -> bool:
    return not isinstance(value, timedelta) and str(value).strip().replace(".", "", 1).isdigit()


class RoutingProperties(SettingsModel):
    """`….function.routing.*`."""

    enabled: bool = False
    """Whether the routing function is bound, as `functionRouter-in-0`."""
    expression_header_enabled: bool = False
    """Whether the routing function evaluates the expression in a message's header
    `spring.cloud.function.routing-expression`. Only for bindings whose senders are all trusted."""


class StreamFunctionProperties(SettingsModel):
    """`spring.cloud.stream.function.*`."""

    definition: str | None = None
    """The older name of `spring.cloud.function.definition`."""
    bindings: dict[str, str] = setting(default_factory=dict)
    """Other names for the bindings of functions: `upper-in-0=orders`."""
    autodetect: bool = True
    """Whether the only function is bound without a definition."""
    routing: RoutingProperties = setting(default_factory=RoutingProperties)
    """The routing function."""


class CloudFunctionProperties(SettingsModel):
    """`spring.cloud.function.*`."""

    definition: str | None = None
    """The functions that are bound, separated by `;`. A `|` composes functions: `upper|echo`. Unset: the only
    function."""
    routing_expression: str | None = None
    """An expression over a message that returns the name of the function for it, if its headers name none. Without a
    definition, this setting binds the routing function."""
    ineligible_definitions: list[str] = setting(default_factory=list)
    """Functions that are never bound without a definition, and do not count for "the only function"."""
    routing: RoutingProperties = setting(default_factory=RoutingProperties)
    """The routing function."""
    configuration: Annotated[dict[str, Any], _NO_WEB] = setting(default_factory=dict)
    """The settings of single functions."""
    scan: Annotated[dict[str, Any], _NO_SCAN] = setting(default_factory=dict)
    """Where functions are searched for."""
    web: Annotated[dict[str, Any], _NO_WEB] = setting(default_factory=dict)
    """The functions that are called over HTTP."""
