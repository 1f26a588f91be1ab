"""Settings among a command's arguments: an argument that is neither a setting nor an option is refused."""

from collections.abc import Sequence
from difflib import get_close_matches

import click

from streamkit.config.secret import without_secrets

__all__ = ["expect_settings"]


def expect_settings(context: click.Context, place: str, first: str, settings: Sequence[str]) -> None:
    """Refuse arguments that are not settings, or that resemble an option. Keys with a dot are settings.

    Args:
        context: The command and its options.
        place: The name of the positional argument in front of the settings, in the command's usage.
        first: The value of that argument; empty if it was not given.
        settings: The settings.

    Raises:
        click.UsageError: An argument is not a setting, or the first one is missing.
        click.NoSuchOption: An argument resembles an option of the command.
    """
    options = [
        option
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for option in parameter.opts
    ]
    misplaced = first.startswith("-")
    before = ""
    for setting in (first, *settings) if misplaced else settings:
        key = setting.partition("=")[0]
        near = [] if "." in key else get_close_matches(key, options, n=1, cutoff=0.75)
        if near:
            raise click.NoSuchOption(key, possibilities=near, ctx=context)
        if not setting.startswith("--"):
            if before.startswith("--") and not {".", "="} & set(before):
                raise click.NoSuchOption(before, ctx=context)  # the argument after it was meant as its value
            raise click.UsageError(
                f"{without_secrets(setting)!r} is not a setting: write settings as --key=value", context
            )
        before = setting
    if misplaced:
        raise click.UsageError(
            f"{without_secrets(first)!r} stands where {place} belongs: write settings after it", context
        )
