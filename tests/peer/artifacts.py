"""Class paths of Apache RocketMQ's programs from Maven Central, and our Java classes compiled against them.

Both are made once per machine and kept in a cache directory: `$STREAMKIT_CACHE`, else the user's cache
directory. A file lock lets concurrent test workers share the work.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSIONS = ("4.9.7", "5.3.3")

HERE = Path(__file__).parent
SOURCES = HERE / "java"
RESOLVE_TIMEOUT = 600.0


class PeersUnavailableError(Exception):
    """Apache's programs can't run on this machine; the text says why."""


def cache_directory() -> Path:
    """Return the directory, made if need be, that keeps class paths and compiled classes."""
    named = os.environ.get("STREAMKIT_CACHE")
    home = os.environ.get("XDG_CACHE_HOME")
    root = Path(named) if named else (Path(home) if home else Path.home() / ".cache") / "streamkit"
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        root = Path(tempfile.gettempdir()) / f"streamkit-cache-{os.getuid()}"
        root.mkdir(exist_ok=True)
    return root


@functools.cache
def program(name: str) -> str:
    """Return the path of a program this machine must have."""
    path = shutil.which(name)
    if path is None:
        raise PeersUnavailableError(f"{name} is not installed (a JDK and Maven are needed)")
    return path


@functools.cache
def class_path(version: str) -> str:
    """Return the class path of one version: our compiled classes, then Apache's jars.

    Raises:
        PeersUnavailableError: Java or Maven is missing, or the artifacts can't be had.
    """
    for name in ("java", "javac"):
        program(name)
    cache = cache_directory()
    with _locked(cache / f"{version}.lock"):
        jars = _jars(cache, version)
        classes = _classes(cache, version, jars)
    return f"{classes}{os.pathsep}{jars}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _jars(cache: Path, version: str) -> str:
    pom = HERE / "pom.xml"
    known = cache / f"class-path-{version}-{_digest([pom])}.txt"
    if known.exists():
        jars = known.read_text().strip()
        if all(Path(jar).exists() for jar in jars.split(os.pathsep)):
            return jars
        known.unlink()
    command = [program("mvn"), "-q", "-B", "-f", str(pom), f"-Drocketmq.version={version}"]
    command += ["-DincludeScope=runtime", f"-Dmdep.outputFile={known}", "dependency:build-classpath"]
    try:
        _run(command)
    except PeersUnavailableError as error:
        known.unlink(missing_ok=True)
        raise PeersUnavailableError(f"Maven can't resolve RocketMQ {version}: {error}") from error
    return known.read_text().strip()


def _classes(cache: Path, version: str, jars: str) -> Path:
    sources = sorted(SOURCES.rglob("*.java"))
    known = cache / f"classes-{version}-{_digest(sources)}"
    if known.exists():
        return known
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        made = Path(scratch) / "classes"
        command = [
            program("javac"),
            "-nowarn",
            "-encoding",
            "UTF-8",
            "-proc:none",
            "-cp",
            jars,
            "-d",
            str(made),
        ]
        _run([*command, *map(str, sources)])
        made.rename(known)
    return known


def _digest(files: list[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeersUnavailableError(
            f"{Path(command[0]).name} did not end in {RESOLVE_TIMEOUT:.0f} s"
        ) from error
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        told = [line for line in lines if "ERROR" in line or "error:" in line] or lines[-3:]
        raise PeersUnavailableError("; ".join(told[:3]))
