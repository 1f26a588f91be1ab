"""Class paths of foreign programs from Maven Central, and our Java classes compiled against them.

They are Apache RocketMQ's broker, tools, client and integration tests, Apache Kafka's broker, and Spring's
applications. All is made once per machine and kept in a cache directory: `$STREAMKIT_CACHE`, else the user's cache
directory. A file lock lets concurrent test workers share the work.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
RESOLVE_TIMEOUT = 600.0


@dataclass(frozen=True)
class JavaProgram:
    """What is on one class path.

    Attributes:
        pom: The project whose dependencies these are.
        versions: The project's properties that name versions.
        sources: Folders of our Java classes.
        release: The Java release that these are compiled for; None: the compiler's own.
    """

    pom: Path
    versions: Mapping[str, str]
    sources: tuple[Path, ...]
    release: int | None = None


VERSIONS = ("4.9.7", "5.3.3")
"""Apache RocketMQ's versions."""

INTEGRATION_TESTS = "integration-4.9.7"
"""The name among `PROGRAMS` of Apache's own integration tests."""

GENERATIONS = ("2.2.6", "2021.0.6", "2023.0.3")
"""Spring Cloud Alibaba's versions: the book's generation, the first with functions, and the current one."""

KAFKA_VERSION = "4.3.1"
"""Apache Kafka's version."""

KAFKA_BINDERS = {"4.3.1": "3.5.8", "5.0.1": "4.0.2"}
"""Versions of Spring Cloud Stream's Kafka binder, each with its Spring Boot."""

PROGRAMS = {version: JavaProgram(HERE / "pom.xml", {"rocketmq": version}, (HERE / "java",)) for version in VERSIONS} | {
    INTEGRATION_TESTS: JavaProgram(HERE / "integration" / "pom.xml", {"rocketmq": "4.9.7"}, (HERE / "integration",)),
    KAFKA_VERSION: JavaProgram(HERE / "kafka_server" / "pom.xml", {"kafka": KAFKA_VERSION}, (HERE / "kafka_server",)),
    "2.2.6": JavaProgram(
        HERE / "spring" / "pom.xml",
        {"boot": "2.3.12.RELEASE", "cloud": "Hoxton.SR12", "alibaba": "2.2.6.RELEASE"},
        (HERE / "spring" / "common", HERE / "spring" / "first"),
        release=8,  # what the Spring of that age can read
    ),
    "2021.0.6": JavaProgram(
        HERE / "spring" / "pom.xml",
        {"boot": "2.6.13", "cloud": "2021.0.5", "alibaba": "2021.0.6.2"},
        (HERE / "spring" / "common", HERE / "spring" / "functions", HERE / "spring" / "current"),
    ),
    "2023.0.3": JavaProgram(
        HERE / "spring" / "pom.xml",
        {"boot": "3.2.9", "cloud": "2023.0.3", "alibaba": "2023.0.3.3"},
        (HERE / "spring" / "common", HERE / "spring" / "functions", HERE / "spring" / "current"),
    ),
}

SPRING_KAFKA = {version: f"spring-kafka-{version}" for version in KAFKA_BINDERS}
"""The name among `PROGRAMS` of each version of Spring's Kafka binder."""

PROGRAMS |= {
    SPRING_KAFKA[version]: JavaProgram(
        HERE / "spring" / "kafka" / "pom.xml",
        {"boot": boot, "stream": version},
        (HERE / "spring" / "common", HERE / "spring" / "functions", HERE / "spring" / "kafka"),
    )
    for version, boot in KAFKA_BINDERS.items()
}


class PeersUnavailableError(Exception):
    """A foreign program can't run on this machine; the text says why."""


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
    """Return the class path of one of `PROGRAMS`: our compiled classes, then the jars.

    Raises:
        PeersUnavailableError: Java or Maven is missing, or the artifacts can't be had.
    """
    for name in ("java", "javac"):
        program(name)
    cache = cache_directory()
    with locked(cache / f"{version}.lock"):
        jars = _jars(cache, version)
        classes = _classes(cache, version, jars)
    return f"{classes}{os.pathsep}{jars}"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; another process waits."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _jars(cache: Path, version: str) -> str:
    made = PROGRAMS[version]
    known = cache / f"class-path-{version}-{digest([made.pom], repr(made.versions))}.txt"
    if known.exists():
        jars = known.read_text().strip()
        if all(Path(jar).exists() for jar in jars.split(os.pathsep)):
            return jars
        known.unlink()
    command = [program("mvn"), "-q", "-B", "-f", str(made.pom)]
    command += [f"-D{name}.version={value}" for name, value in made.versions.items()]
    command += ["-DincludeScope=runtime", f"-Dmdep.outputFile={known}", "dependency:build-classpath"]
    try:
        run(command)
    except PeersUnavailableError as error:
        known.unlink(missing_ok=True)
        raise PeersUnavailableError(f"Maven can't resolve {version}: {error}") from error
    return known.read_text().strip()


def _classes(cache: Path, version: str, jars: str) -> Path:
    release = PROGRAMS[version].release
    sources = sorted(source for folder in PROGRAMS[version].sources for source in folder.rglob("*.java"))
    known = cache / f"classes-{version}-{digest(sources, str(release))}"
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
            *(["--release", str(release)] if release else []),
            "-cp",
            jars,
            "-d",
            str(made),
        ]
        run([*command, *map(str, sources)])
        made.rename(known)
    return known


def digest(files: list[Path], more: str) -> str:
    """Return what differs when one of the files or `more` does."""
    content = b"".join(file.read_bytes() for file in files) + more.encode()
    return hashlib.sha256(content).hexdigest()[:12]


def run(command: list[str], cwd: Path | None = None) -> str:
    """Run a tool and return what it printed.

    Raises:
        PeersUnavailableError: It failed; the text holds what it said.
    """
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeersUnavailableError(f"{Path(command[0]).name} did not end in {RESOLVE_TIMEOUT:.0f} s") from error
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        reported = [line for line in lines if "ERROR" in line or "error:" in line] or lines[-3:]
        raise PeersUnavailableError("; ".join(reported[:3]))
    return done.stdout
