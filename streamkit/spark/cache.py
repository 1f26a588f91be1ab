"""The directory of this user's files that can be made again."""

import errno
import os
import tempfile
from pathlib import Path

__all__ = ["cache_directory", "keep_script"]


def cache_directory() -> Path:
    """Return ``STREAMKIT_CACHE``, else ``streamkit`` in ``XDG_CACHE_HOME``, else in ``~/.cache``, as an absolute
    path."""
    named = os.environ.get("STREAMKIT_CACHE")
    home = os.environ.get("XDG_CACHE_HOME")
    cache = Path(named) if named else (Path(home) if home else Path.home() / ".cache") / "streamkit"
    return cache.absolute()  # Spark's processes have other working directories


def keep_script(script: Path, text: str) -> None:
    """Write a program with this text, unless it is there; other processes may do so at the same time.

    Raises:
        OSError: It cannot be written, or cannot be run there.
    """
    if not (script.is_file() and script.read_text() == text):
        script.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(script)
    if not os.access(script, os.X_OK):
        reason = "no program is run from this file system: set STREAMKIT_CACHE to a directory on another"
        raise PermissionError(errno.EACCES, reason, str(script))
