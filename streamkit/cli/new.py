"""`streamkit new`: create a project, an application or a binder, from templates.

The templates are in `templates/`, one folder for each kind of project. ``$name``, ``$package`` and ``$Class`` in their
file names and texts are replaced by those of the project.
"""

import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

import click

from streamkit.entry_points import BINDERS as BINDER_TYPES
from streamkit.entry_points import offers_of

__all__ = ["new"]

BINDERS = ("rocketmq", "kafka", "inmemory")
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
SUFFIX = ".tmpl"

_TEMPLATES = files("streamkit.cli") / "templates"
_DISTRIBUTION = "streamkit-messaging"
_REQUIREMENTS = {"kafka": f"{_DISTRIBUTION}[kafka]"}


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME")
@click.option(
    "--on", "binder", type=click.Choice(BINDERS), help="The messaging system of the application. Default: rocketmq."
)
@click.option("--binder", "is_binder", is_flag=True, help="Create a binder of type NAME for a messaging system.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="The directory of the project.  [default: ./NAME]",
)
def new(*, names: tuple[str, ...], binder: str | None, is_binder: bool, directory: Path | None) -> None:
    """Create a project with passing tests: an application or a binder.

    \b
    streamkit new shop               an application on RocketMQ
    streamkit new shop --on kafka    an application on Kafka
    streamkit new --binder acme      a binder of type acme, and the contract suite for it
    """
    name, *more = names
    if more:
        raise click.UsageError(
            f"expected one name; to make an application on a binder: streamkit new {name} --on {more[0]}"
        )
    if is_binder and binder is not None:
        raise click.UsageError("--on and --binder exclude each other: --on chooses the binder of an application")
    package = _package(name)
    target = directory or Path(name)
    filling = {"name": name, "package": package, "Class": "".join(map(str.capitalize, name.split("-")))}
    if is_binder:
        _refuse_known_type(name)
    try:
        if target.exists() and any(target.iterdir()):
            raise click.ClickException(f"{target} exists and is not empty; choose another --directory")
        if is_binder:
            _write(target, _TEMPLATES / "binder", filling)
        else:
            _write_application(target, binder or BINDERS[0], filling)
    except OSError as error:
        raise click.ClickException(f"cannot write {target}: {error.strerror}; choose another --directory") from error
    click.echo(f"made {target}; README.md there explains the rest. To run its tests: cd {target} && python -m pytest")


def _package(name: str) -> str:
    if not NAME.fullmatch(name):
        raise click.UsageError(
            f"{name!r} is not a valid project name: use lower-case letters, digits and single hyphens"
        )
    package = name.replace("-", "_")
    if keyword.iskeyword(package) or package in sys.stdlib_module_names or package in ("streamkit", "binders", "tests"):
        raise click.UsageError(f"{package!r} is a keyword or module of Python or streamkit; choose another name")
    return package


def _refuse_known_type(name: str) -> None:
    known = offers_of(BINDER_TYPES)
    if name in known:
        raise click.UsageError(
            f"there is a binder of type {name!r} already, {known[name][0].value}; an application on it: "
            f"streamkit new NAME --on {name}"
        )


def _write_application(target: Path, binder: str, filling: Mapping[str, str]) -> None:
    more = {
        "binder": binder,
        "requirement": _REQUIREMENTS.get(binder, _DISTRIBUTION),
        "settings": _filled(_TEMPLATES / "on" / f"{binder}.properties{SUFFIX}", filling),
        "run": _filled(_TEMPLATES / "on" / f"{binder}.md{SUFFIX}", filling),
    }
    # An application in memory receives no messages from other processes.
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
