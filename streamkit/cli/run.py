"""``streamkit run module:app``: run an application until a signal."""

import importlib
import logging
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # `streamkit --help` imports no application
    from streamkit.application import StreamApplication

__all__ = ["load_application", "run"]

_LEVELS = ["critical", "error", "warning", "info", "debug"]


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--app-dir", default=".", show_default=True, help="Where the module is looked for, before the path."
)
@click.option(
    "--log-level", type=click.Choice(_LEVELS), default="info", show_default=True, help="What is logged."
)
@click.argument("target", metavar="MODULE[:NAME]")
@click.argument("settings", nargs=-1, type=click.UNPROCESSED)
def run(target: str, settings: tuple[str, ...], app_dir: str, log_level: str) -> None:
    """Run the application NAME (`app` if not given) of MODULE until Ctrl-C or SIGTERM.

    What follows MODULE:NAME are settings that win over those of files, such as
    --spring.cloud.stream.default-binder=inmemory.

    The first signal stops gracefully: calls in flight are finished. The second one ends at once.
    """
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", force=True
    )
    unknown = [setting for setting in settings if not setting.startswith("--")]
    if unknown:
        raise click.UsageError(f"{unknown[0]!r} is no setting: settings are written --key=value")
    sys.path.insert(0, app_dir)
    load_application(target).run(list(settings))


def load_application(target: str) -> "StreamApplication":
    """Import the application that ``module:name`` names.

    Raises:
        click.UsageError: There is no such module, or nothing of that name in it, or it is no application.
    """
    from streamkit.application import StreamApplication

    module_name, _, name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise click.UsageError(
            f"there is no module {module_name!r} in this directory or on the path"
        ) from error
    found = getattr(module, name or "app", None)
    if isinstance(found, StreamApplication):
        return found
    names = [key for key, value in vars(module).items() if isinstance(value, StreamApplication)]
    hint = f"; it has {', '.join(f'{module_name}:{each}' for each in names)}" if names else ""
    what = "nothing of that name" if found is None else f"a {type(found).__name__}"
    raise click.UsageError(f"{module_name}:{name or 'app'} is {what}, not a StreamApplication{hint}")
