"""`streamkit new`: a project to begin with, an application or a binder.

The files lie in `templates/`, one folder for each kind of project; in their names and texts ``$name``, ``$package``
and ``$Class`` stand for the project's.
"""

import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

import click

__all__ = ["new"]

BINDERS = ("rocketmq", "kafka", "inmemory")
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
SUFFIX = ".tmpl"

_TEMPLATES = files("streamkit.cli") / "templates"
_REQUIREMENTS = {"kafka": "streamkit[kafka]"}


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME")
@click.option(
    "--on", "binder", type=click.Choice(BINDERS), help="What the application runs on: rocketmq, if not told."
)
@click.option(
    "--binder", "is_binder", is_flag=True, help="Make a binder for a messaging system, of type NAME."
)
@click.option(
    "--directory", type=click.Path(path_type=Path, file_okay=False), help="Where to; ./NAME, if not told."
)
def new(*, names: tuple[str, ...], binder: str | None, is_binder: bool, directory: Path | None) -> None:
    """Make a project: an application, or a binder of your own, with tests that pass.

    \b
    streamkit new shop               an application on RocketMQ
    streamkit new shop --on kafka    an application on Kafka
    streamkit new --binder acme      a binder of type acme, and the contract suite for it
    """
    name, *more = names
    if more:
        raise click.UsageError(
            f"one name, please; an application on a binder: streamkit new {name} --on {more[0]}"
        )
    if is_binder and binder is not None:
        raise click.UsageError("--on is for applications; a binder is what they run on")
    package = _package(name)
    target = directory or Path(name)
    if target.exists() and any(target.iterdir()):
        raise click.ClickException(f"{target} is there already, and not empty; name another --directory")
    filling = {"name": name, "package": package, "Class": "".join(map(str.capitalize, name.split("-")))}
    if is_binder:
        _refuse_known_type(name)
        _write(target, _TEMPLATES / "binder", filling)
    else:
        _write_application(target, binder or BINDERS[0], filling)
    click.echo(f"made {target}; README.md there tells the rest. Its tests: cd {target} && python -m pytest")


def _package(name: str) -> str:
    if not NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} is no name of a project: small letters, digits and single hyphens")
    package = name.replace("-", "_")
    if (
        keyword.iskeyword(package)
        or package in sys.stdlib_module_names
        or package in ("streamkit", "binders", "tests")
    ):
        raise click.UsageError(
            f"{package!r} is a module or a word of Python's or streamkit's; take another name"
        )
    return package


def _refuse_known_type(name: str) -> None:
    known = {entry.name: entry.value for entry in entry_points(group="streamkit.binders")}
    if name in known:
        raise click.UsageError(
            f"there is a binder of type {name!r} already, {known[name]}; an application on it: "
            f"streamkit new NAME --on {name}"
        )


def _write_application(target: Path, binder: str, filling: Mapping[str, str]) -> None:
    more = {
        "binder": binder,
        "requirement": _REQUIREMENTS.get(binder, "streamkit"),
        "settings": _filled(_TEMPLATES / "on" / f"{binder}.properties{SUFFIX}", filling),
        "run": _filled(_TEMPLATES / "on" / f"{binder}.md{SUFFIX}", filling),
    }
    # In memory nobody outside the process is heard.
    without = "send.py" if binder == "inmemory" else None
    _write(target, _TEMPLATES / "application", {**filling, **more}, without)


def _write(target: Path, folder: Traversable, filling: Mapping[str, str], without: str | None = None) -> None:
    for path, file in _files(folder):
        if without == path.rpartition("/")[2]:
            continue
        destination = target / Template(path).substitute(filling)
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_text(_filled(file, filling), encoding="utf-8")


def _files(folder: Traversable, above: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{above}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            yield above + entry.name.removesuffix(SUFFIX), entry


def _filled(file: Traversable, filling: Mapping[str, str]) -> str:
    return Template(file.read_text(encoding="utf-8")).substitute(filling)
