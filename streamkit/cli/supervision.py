"""What the supervisor of `streamkit run` starts: how many workers, with which settings of their own, beside what."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from streamkit.cli.supervisor import Plan, Supervisor
from streamkit.config.application_properties import MANAGEMENT_SERVER, ManagementServerProperties
from streamkit.config.environment import IN_CODE
from streamkit.config.places import located
from streamkit.config.secret import shown_text
from streamkit.config.settings import PREFIX
from streamkit.errors import StreamkitError

if TYPE_CHECKING:
    from streamkit.application import StreamApplication

__all__ = ["check_can_be_told", "settings_of_workers", "shared_settings", "supervise"]

logger = logging.getLogger(__name__)

WorkerCommand = Callable[[int, Sequence[str]], Sequence[str]]


def supervise(
    load: "Callable[[], StreamApplication]",
    settings: Sequence[str],
    command: WorkerCommand,
    workers: int | None,
    changes: AsyncIterator[Sequence[str]] | None,
) -> int:
    """Run workers until a signal, or until none is left; return the exit code.

    Args:
        load: Imports the application, whose settings say what its workers share.
        settings: Settings as arguments.
        command: Returns the arguments to Python of the worker of that number, with settings of its own.
        workers: How many; None is one as it would run alone, which nothing is shared with.
        changes: The files that changed.

    Raises:
        SystemExit: The settings are wrong, or what the workers share cannot be started.
    """
    try:
        if workers is None:
            return asyncio.run(Supervisor(Plan(lambda: [command(0, ())], changes)).run())
        return asyncio.run(_supervise_several(load(), settings, command, workers, changes))
    except StreamkitError as error:
        raise SystemExit(f"Error: {error}") from error


async def _supervise_several(
    application: "StreamApplication",
    settings: Sequence[str],
    command: WorkerCommand,
    workers: int,
    changes: AsyncIterator[Sequence[str]] | None,
) -> int:
    application.take_arguments(settings)
    async with AsyncExitStack() as shared:
        common = await shared_settings(application, shared)

        def commands() -> Sequence[Sequence[str]]:
            application.take_arguments(settings)  # reads the files anew
            each = [{**common, **own} for own in settings_of_workers(application, workers)]
            check_can_be_told(application, each)
            return [
                command(number, [f"--{key}={value}" for key, value in told.items()])
                for number, told in enumerate(each)
            ]

        return await Supervisor(Plan(commands, changes)).run()


async def shared_settings(application: "StreamApplication", shared: AsyncExitStack) -> Mapping[str, str]:
    """Start what the workers share; return the settings by which they find it."""
    found: dict[str, str] = {}
    registry = application.container.binders()
    for binder in registry.used():
        system = registry.shared_system(binder)
        if system is not None:
            own = await shared.enter_async_context(system)
            for key, value in own.items():
                logger.info("The workers share %s=%s", key, shown_text(key, value))
            found |= {registry.key_for(binder, key): value for key, value in own.items()}
    return found


def check_can_be_told(application: "StreamApplication", workers: Sequence[Mapping[str, str]]) -> None:
    """Refuse settings of workers that the application's code gives itself: those win over arguments.

    Raises:
        ConfigurationError: There is one, with another value.
    """
    for told in workers:
        for key, value in told.items():
            found = application.environment.get(key)
            if found is not None and str(found.origin) == IN_CODE and str(found) != value:
                raise located(
                    found,
                    f"with --workers this one is told {key}={shown_text(key, value)}, but what code gives wins: give "
                    "it in a file, as an argument or as an environment variable",
                )


def settings_of_workers(application: "StreamApplication", workers: int) -> Sequence[Mapping[str, str]]:
    """Each worker's instance index and management port: the application's, and those after it."""
    stream = application.container.settings().value
    count = max(stream.instance_count, stream.instance_index + workers)
    port = application.environment.bind(MANAGEMENT_SERVER, ManagementServerProperties).port
    settings = []
    for number in range(workers):
        own = {
            f"{PREFIX}.instance-index": str(stream.instance_index + number),
            f"{PREFIX}.instance-count": str(count),
        }
        if port is not None and port > 0:
            own[f"{MANAGEMENT_SERVER}.port"] = str(port + number)
        settings.append(own)
    return settings
