"""Publish an application's bindings to Spark's Python processes on this machine.

Spark makes readers and writers in its own processes, which share only the file system with the driver. So a running
application writes its bindings into a file that only its user can read, and the format ``streamkit`` finds the file by
the application's name::

    ~/.cache/streamkit/applications/<name>@<process>      one for each process that publishes:
                                                          a line that says when it started, and the pickled bindings
"""

import os
import pickle
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from streamkit.errors import ConfigurationError
from streamkit.spark.cache import cache_directory
from streamkit.spark.snapshot import ChannelSnapshot, snapshot_of

if TYPE_CHECKING:
    from streamkit.application import StreamApplication

__all__ = ["published", "published_channels"]


@contextmanager
def published(app: "StreamApplication") -> "Iterator[str]":
    """Publish the bindings of a running application while the block runs, for the format ``streamkit`` on this machine.

    Yields:
        The value for the option ``application``: the name and this process, in case others of the name run.

    Raises:
        ConfigurationError: Other users can write to the directory of published bindings.
    """
    channels = {name: snapshot_of(app, name) for name in app.container.binding_factory().settings.configured}
    directory = _directory()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_if_open(directory)
    name = f"{quote(app.name, safe=' ')}@{os.getpid()}"
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".", delete=False) as file:
        file.write(_started(os.getpid()) + b"\n")
        pickle.dump(channels, file)
    path = Path(file.name).replace(directory / name)
    try:
        yield name
    finally:
        path.unlink(missing_ok=True)


def published_channels(application: str) -> Mapping[str, ChannelSnapshot]:
    """Return the bindings of the application of that name, or of that name and process.

    Raises:
        ConfigurationError: No such application publishes its bindings, or several do.
    """
    found = _found(application)
    if len(found) != 1:
        names = ", ".join(sorted(path.name for path in (found or _found(""))))
        raise ConfigurationError(
            f"several processes publish bindings of application {application!r}: give one of {names}"
            if found
            else f"no running application {application!r} publishes its bindings on this machine"
            f" (published: {names or 'none'}): run the query inside `with streamkit.spark.published(app):`, or leave"
            " the option 'application' out to have the settings files read",
            value=application,
        )
    _refuse_if_open(found[0].parent)
    channels: Mapping[str, ChannelSnapshot] = pickle.loads(found[0].read_bytes().partition(b"\n")[2])
    return channels


def _found(application: str) -> list[Path]:
    """Return the files of live processes, and remove the files of others."""
    directory = _directory()
    found = []
    for path in sorted(directory.glob("[!.]*@*")) if directory.is_dir() else ():
        name, _, process = path.name.rpartition("@")
        if not process.isdecimal():
            continue
        if not _lives(int(process), path):
            path.unlink(missing_ok=True)
        elif application in {"", unquote(name), path.name}:
            found.append(path)
    return found


def _lives(process: int, file: Path) -> bool:
    """Return whether the process that published ``file`` is alive, and its number was not given to another process
    since."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        began = file.read_bytes().partition(b"\n")[0]
    except FileNotFoundError:  # the process has removed it just now
        return False
    return began == _started(process)


def _started(process: int) -> bytes:
    """Return when a process started, in the system's own terms; an empty text if the system does not tell."""
    try:
        status = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return b""
    return status.rpartition(b")")[2].split()[19]  # the process's name, in parentheses, may have spaces


def _directory() -> Path:
    return cache_directory() / "applications"


def _refuse_if_open(directory: Path) -> None:
    """Refuse a directory to which other users can write, because files in it are unpickled."""
    state = directory.stat()
    if os.name == "posix" and (state.st_uid != os.getuid() or stat.S_IMODE(state.st_mode) & 0o077):
        raise ConfigurationError(
            f"{directory} must belong to this user alone: remove it, or set STREAMKIT_CACHE to another directory",
            value=str(directory),
        )
