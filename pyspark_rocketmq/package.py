"""``python -m pyspark_rocketmq.package rocketmq.zip``: write a file with what a cluster's executors need.

::

    spark.archives=rocketmq.zip#rocketmq          each executor unpacks the file into its directory rocketmq,
    spark.executorEnv.PYTHONPATH=rocketmq         where its Python processes find the packages
    --py-files rocketmq.zip                       instead, with --pure: Python imports from the file as it is

The executors' Python has to have pyarrow and numpy, as for all that Spark does with Arrow.
"""

from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import click

PACKAGES = ("pyspark_rocketmq", "rocket_client", "rocket_remoting")
"""All that executors import of this project."""

COMPILED = "msgspec"
"""The compiled distribution that executors import in any case."""

OPTIONAL = ("lz4", "zstandard", "streamkit-native")
"""Compiled distributions that are used where they are installed: for bodies compressed with them, and for speed."""

_NOT_PACKED = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
"""Files about an installation on this machine."""

_MADE = (1980, 1, 1, 0, 0, 0)
"""The time of all files, so that equal contents make equal archives."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("archive", type=click.Path(path_type=Path, dir_okay=False, writable=True))
@click.option("--pure", is_flag=True, help="Leave compiled packages out, which Python cannot import from the file.")
def main(*, archive: Path, pure: bool) -> None:
    """Write what executors need of the format `rocketmq` into ARCHIVE, whose name ends in .zip.

    Compiled packages are those of this machine: the executors need the same system and the same version of Python.
    """
    if archive.suffix != ".zip":
        raise click.UsageError(f"{archive} does not end in .zip, by which Spark recognizes an archive")
    distributions = [] if pure else _installed()
    with ZipFile(archive, "w", ZIP_DEFLATED) as file:
        for name, content in sorted({**_packages(), **_files(distributions)}.items()):
            file.writestr(ZipInfo(name, _MADE), content.read_bytes(), ZIP_DEFLATED)
    compiled = [f"{each.name} {each.version}" for each in distributions]
    click.echo(f"{archive} has {', '.join([*PACKAGES, *compiled])}")
    click.echo(f"Executors also need {', '.join([*([COMPILED] if pure else []), 'pyarrow', 'numpy'])}.")


def _packages() -> dict[str, Path]:
    """Return the modules of this project by their names in the archive."""
    found = {}
    for package in PACKAGES:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None, f"{package} is not a package with an __init__.py"
        directory = Path(spec.origin).parent
        for module in directory.rglob("*.py"):
            found[module.relative_to(directory.parent).as_posix()] = module
    return found


def _installed() -> list[Distribution]:
    """Return the compiled distributions that are installed."""
    found = [distribution(COMPILED)]
    for name in OPTIONAL:
        try:
            found.append(distribution(name))
        except PackageNotFoundError:
            continue
    return found


def _files(distributions: list[Distribution]) -> dict[str, Path]:
    """Return the files of distributions by their names in the archive."""
    return {
        file.as_posix(): Path(str(file.locate()))
        for each in distributions
        for file in each.files or ()
        if ".." not in file.parts and "__pycache__" not in file.parts and file.name not in _NOT_PACKED
    }


if __name__ == "__main__":
    main()
