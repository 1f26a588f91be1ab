"""The Python that Spark starts: this interpreter, with PySpark as it is installed.

Spark puts ``pyspark.zip`` first on the path of the Python processes that it starts. That file has no bytecode, so each
process compiles its imports: 0.8 s of CPU instead of 0.2, for each streaming query and for each kind of work. A script
removes the file from the path, if all processes of this interpreter find the same PySpark without it.
"""

import importlib.util
import os
import shutil
import site
import sys
from hashlib import sha256
from pathlib import Path
from shlex import quote

from streamkit.errors import ConfigurationError
from streamkit.spark.cache import cache_directory, keep_script

__all__ = ["choose_python", "local_python", "wrapped"]


def choose_python(*, is_local: bool) -> None:
    """Make Python processes run this interpreter, or the one that the user has set.

    Otherwise PySpark takes ``python3`` from the path, which may lack the packages of this environment.

    Args:
        is_local: Whether they run on this machine; other machines do not have the program of an earlier session.

    Raises:
        ConfigurationError: They run on other machines too, and the one that the user has set is not on this machine.
    """
    local = local_python()
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if os.environ.get(variable, local) == local:
            os.environ[variable] = local if is_local else sys.executable
    python = os.environ["PYSPARK_PYTHON"]
    if not is_local and shutil.which(python) is None:
        raise ConfigurationError(
            f"PYSPARK_PYTHON is {python}, which {Path.cwd()} on this machine does not have: Spark runs it here too, to"
            " plan queries, not only on executors; start this program in a directory that has the same environment, or"
            " set PYSPARK_PYTHON to a program that all machines have",
            key="PYSPARK_PYTHON",
            value=python,
        )


def local_python() -> str:
    """Return the program for Python processes on this machine."""
    if sys.platform == "win32" or not (_is_found_by_all("pyspark") and _is_found_by_all("py4j")):
        return sys.executable
    try:
        return str(wrapped(sys.executable, cache_directory()))
    except OSError:  # the program cannot be written here: processes only start slower
        return sys.executable


def _is_found_by_all(package: str) -> bool:
    """Return whether every process of this interpreter finds the package, not only processes that change their path."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return False
    found = Path(spec.origin).parents[1].resolve()
    everywhere = [*site.getsitepackages(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    if site.ENABLE_USER_SITE:
        everywhere.append(site.getusersitepackages())
    return found.is_dir() and found in [Path(entry).resolve() for entry in everywhere if entry]


def wrapped(python: str, cache: Path) -> Path:
    """Return a program that runs the given one without the files in which Spark packs PySpark and Py4J.

    Args:
        python: The interpreter.
        cache: The directory of programs; it is made.
    """
    script = cache / f"python-{sha256(python.encode()).hexdigest()[:12]}" / "python"
    keep_script(script, _SCRIPT.format(python=quote(python)))
    return script


_SCRIPT = """#!/bin/sh
# Made by streamkit: PySpark is imported as it is installed, with its bytecode, and not from Spark's zip file.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
  case $entry in
    */pyspark/python/lib/*.zip) ;;
    *) kept=$kept${{kept:+:}}$entry ;;
  esac
done
unset IFS
PYTHONPATH=$kept exec {python} "$@"
"""
