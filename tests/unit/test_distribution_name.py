"""The distribution is `streamkit-messaging`; PyPI's `streamkit` is another project, which nothing here may ask for."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
PLACES = [*PACKAGES, ".ci", "benchmarks", "docs", "native/src", "samples", "tests"]
SUFFIXES = {".py", ".pyi", ".md", ".toml", ".tmpl", ".txt", ".rs", ".service", ""}

REQUEST = re.compile(
    r"""
      (?<![\w./-])streamkit\[[a-z{]
    | pip[ ]install\b[^`\n]*[ '"]streamkit(?![\w./-])
    | (?:dependencies|requires)\s*=\s*\[[^\]]*['"]streamkit(?![\w.-])
    | (?:version|distribution|metadata|requires)\(['"]streamkit['"]\)
    """,
    re.VERBOSE,
)


def texts() -> Iterator[Path]:
    """The sources, pages, templates and scripts of the checkout, but for this file."""
    found = [path for place in PLACES for path in (ROOT / place).rglob("*")]
    for path in [*found, *ROOT.iterdir(), *(ROOT / "native").iterdir()]:
        if path.suffix in SUFFIXES and path.is_file() and path != Path(__file__):
            yield path


@pytest.mark.parametrize(
    "text",
    [
        "pip install 'streamkit[kafka]'",
        "pip install 'streamkit[{extra}]'",
        "pip install streamkit",
        'dependencies = ["click", "streamkit"]',
        'requires = ["streamkit>=1"]',
        'version("streamkit")',
    ],
)
def test_pattern_matches_requests_for_the_other_project(text: str) -> None:
    """In requirements, commands and pages."""
    assert REQUEST.search(text)


def test_no_file_requests_the_other_project() -> None:
    """No error message, page, template, script or dependency."""
    found = {str(path.relative_to(ROOT)): REQUEST.findall(path.read_text(encoding="utf-8")) for path in texts()}
    assert len(found) > 1000
    assert {path: requests for path, requests in found.items() if requests} == {}


def test_error_messages_name_the_distribution() -> None:
    """A hint such as `pip install 'streamkit-messaging[kafka]'` names it and one of its extras."""
    assert PROJECT["project"]["name"] == "streamkit-messaging"
    hint = re.compile(r"streamkit-messaging\[([a-z]+)\]")
    named = {extra for path in texts() for extra in hint.findall(path.read_text(encoding="utf-8"))}
    assert (
        {"avro", "kafka", "management", "reload", "samples", "spark"}
        <= named
        <= PROJECT["project"]["optional-dependencies"].keys()
    )


def test_wheel_contains_only_packages_with_our_names() -> None:
    """`binders` is a namespace package that third parties add to; all other names begin with one of ours."""
    ours = re.compile(r"(streamkit|rocket_|pyspark_(rocketmq|streamkit)$)")
    assert [package for package in PACKAGES if not ours.match(package)] == ["binders"]
