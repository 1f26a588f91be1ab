"""Where a group shall be moved to, as people write it on a command line."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rocket_admin.offsets import Target

__all__ = ["offset_or_time", "time_or_end"]


def time_or_end(text: str) -> "Target":
    """Return the time or the end of the queues that a text names.

    Raises:
        click.BadParameter: The text is neither.
    """
    from rocket_admin.targets import time_or_end_of

    try:
        return time_or_end_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def offset_or_time(text: str) -> "Target":
    """Return the offset, the time or the end of the queues that a text names.

    Raises:
        click.BadParameter: The text is none of them.
    """
    from rocket_admin.targets import target_of

    try:
        return target_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
