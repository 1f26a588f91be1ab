"""The start of the supervisor of `streamkit run`: the workers, their own settings, and the systems they share."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from streamkit.config.application_properties import MANAGEMENT_SERVER
from streamkit.config.environment import IN_CODE
from streamkit.config.located_errors import located
from streamkit.config.management_properties import ManagementServerProperties
from streamkit.config.secret import shown_text
from streamkit.config.settings import PREFIX
from streamkit.errors import StreamkitError
from streamkit.processes.supervisor import Plan, Supervisor

if TYPE_CHECKING:
    from streamkit.application import StreamApplication

__all__ = ["check_settings_reach_workers", "settings_of_workers", "shared_settings", "supervise"]

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
        load: Imports the application, whose settings tell which systems its workers share.
        settings: Settings as arguments.
        command: Returns the arguments to Python for the worker with the given number and settings of its own.
        workers: The number of workers. None runs a single worker with the settings of the application; it shares no
            system.
        changes: Yields the files that changed, each group a reason to restart the workers; None if no files are
            watched.

    Raises:
        SystemExit: The settings are invalid, or a shared system cannot be started.
    """
    try:
        if workers is None:
            plan = Plan(lambda: {"Worker 0": command(0, ())}, StreamkitError, changes)
            return asyncio.run(Supervisor(plan).run())
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

        def commands() -> Mapping[str, Sequence[str]]:
            application.take_arguments(settings)  # loads the settings files again
            each = [{**common, **own} for own in settings_of_workers(application, workers)]
            check_settings_reach_workers(application, each)
            return {
                f"Worker {number}": command(number, [f"--{key}={value}" for key, value in settings_of_worker.items()])
                for number, settings_of_worker in enumerate(each)
            }

        return await Supervisor(Plan(commands, StreamkitError, changes)).run()


async def shared_settings(application: "StreamApplication", shared: AsyncExitStack) -> Mapping[str, str]:
    """Start the systems that the workers share, such as the embedded broker; return the settings to find them.

    Args:
        application: The application.
        shared: The exit stack that stops the systems.
    """
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


def check_settings_reach_workers(application: "StreamApplication", workers: Sequence[Mapping[str, str]]) -> None:
    """Check that the application's code does not override the workers' settings: code takes precedence over arguments.

    Raises:
        ConfigurationError: Code sets one of the keys to another value.
    """
    for settings_of_worker in workers:
        for key, value in settings_of_worker.items():
            found = application.environment.get(key)
            if found is not None and str(found.origin) == IN_CODE and str(found) != value:
                raise located(
                    found,
                    f"with --workers this process needs {key}={shown_text(key, value)}, but the code sets another "
                    "value, which takes precedence: set it in a file, as an argument or as an environment variable",
                )


def settings_of_workers(application: "StreamApplication", workers: int) -> Sequence[Mapping[str, str]]:
    """Return the instance index, the instance count and the management port of each worker, counted up."""
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
