"""The settings `streamkit.outbox.*`."""

from datetime import timedelta
from typing import Annotated, Final

from streamkit.config.durations import Positive, Seconds
from streamkit.config.settings_model import SettingsModel, setting

__all__ = ["OUTBOX", "OutboxProperties"]

OUTBOX: Final = "streamkit.outbox"


class OutboxProperties(SettingsModel):
    """`streamkit.outbox.*`."""

    url: str | None = None
    """The database of the commands `streamkit outbox`, as SQLAlchemy writes URLs; an application has its own engine."""
    relay: bool = True
    """Whether the application itself sends the rows. Set it to false if `streamkit outbox relay` does."""
    batch_size: int = setting(default=200, ge=1, le=10_000)
    """The most rows that a relay sends in one round; up to this many may be sent twice if it is killed."""
    lease: Annotated[Seconds, Positive] = timedelta(seconds=30)
    """How long a relay has for a round. After that another relay may take its rows over."""
    poll_interval: Annotated[Seconds, Positive] = timedelta(seconds=1)
    """How often a relay looks for rows whose commit did not wake it."""
    backoff: Annotated[Seconds, Positive] = timedelta(seconds=1)
    """The pause after a failure. It doubles with each further failure."""
    max_backoff: Annotated[Seconds, Positive] = timedelta(minutes=5)
    """The longest pause."""
    max_send_times: int = setting(default=16, ge=1)
    """How often a message that was refused or not confirmed is sent again before it waits for an operator."""
    check_after: Annotated[Seconds, Positive] = timedelta(minutes=1)
    """The age from which the consumer is asked about a row, and the time between two questions.

    The answer may take longer than that.
    """
    check_size: int = setting(default=500, ge=1, le=10_000)
    """The most ids in one question."""
    retention: Annotated[Seconds, Positive] = timedelta(days=7)
    """How long finished rows are kept."""
    consumption_retention: Annotated[Seconds, Positive] = timedelta(days=30)
    """How long a consumer remembers a message. If it arrives again after that, it is consumed again."""
    notify: bool = True
    """On PostgreSQL: whether commits notify relays in other processes."""
