"""Settings among a command's arguments: what is neither a setting nor an option is refused."""

from collections.abc import Sequence
from difflib import get_close_matches

import click

from streamkit.config.secret import without_secrets

__all__ = ["expect_settings"]


def expect_settings(context: click.Context, place: str, first: str, settings: Sequence[str]) -> None:
    """Refuse what is no setting, and what is nearly an option. Keys with a dot are settings.

    Args:
        context: The command and its options.
        place: What stands before the settings, in the command's usage.
        first: What does stand there; empty when nothing need be.
        settings: The settings.

    Raises:
        click.UsageError: There is such an argument.
    """
    options = [
        option
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for option in parameter.opts
    ]
    misplaced = first.startswith("-")
    for setting in (first, *settings) if misplaced else settings:
        key = setting.partition("=")[0]
        near = [] if "." in key else get_close_matches(key, options, n=1, cutoff=0.75)
        if near:
            raise click.NoSuchOption(key, possibilities=near, ctx=context)
        if not setting.startswith("--"):
            raise click.UsageError(
                f"{without_secrets(setting)!r} is no setting: settings are written --key=value", context
            )
    if misplaced:
        raise click.UsageError(
            f"{without_secrets(first)!r} stands where {place} belongs: settings follow it", context
        )
