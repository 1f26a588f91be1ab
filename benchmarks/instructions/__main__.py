"""`python -m benchmarks.instructions`: count instructions for each message, and compare with the counts in the file.

The counts depend on the interpreter's build. So the file has counts for several builds, and a build that is not in it
is only counted. `--write` puts the counts of this build into the file.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.instructions.scenes import SCENES, Scene
from rocket_remoting.native import has_native_core

COUNTS = Path(__file__).with_name("counts.json")
TOLERATED = 0.05
"""The part by which a count may exceed the one in the file; repeated counts differ by less than a hundredth."""
_COUNT = re.compile(r"==(\d+)== I\s+refs:\s+([\d,]+)")


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SCENES)), help="Only these scenes.")
@click.option("--write", is_flag=True, help="Put the counts of this interpreter into the file.")
def main(*, only: tuple[str, ...], write: bool) -> None:
    """Count the instructions of the hot paths; exit with 1 if one has grown by more than 5 %."""
    console = Console()
    if shutil.which("valgrind") is None:
        console.print("Not counted: there is no valgrind here. On Debian and Ubuntu: apt-get install valgrind")
        return
    build, known = _build(), json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    before: dict[str, int] = known.get(build, {})
    names = list(only or SCENES)
    with console.status("counting ..."):
        counts = _count(names)
        grown = [name for name in names if _has_grown(counts[name], before.get(name))]
        if grown and not write:  # timers add some instructions to a run that has to wait for the processor
            counts |= {name: min(counts[name], count) for name, count in _count(grown).items()}
            grown = [name for name in grown if _has_grown(counts[name], before[name])]
    table = Table(title=f"Instructions for each message, {build}", title_justify="left")
    for title in ("", "now", "in the file", "change"):
        table.add_column(title, justify="left" if not title else "right")
    for name, count in counts.items():
        was = before.get(name)
        change = "" if was is None else f"{count / was - 1:+.1%}"
        table.add_row(SCENES[name].title, f"{count:,}", "" if was is None else f"{was:,}", change)
    console.print(table)
    if write:
        known[build] = before | counts
        COUNTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        console.print(f"{COUNTS.name} has these counts now.")
    elif grown:
        console.print(
            f"{', '.join(grown)}: more instructions than {COUNTS.name} allows. Find out why. If it is worth it, "
            "run python -m benchmarks.instructions --write and say so in the commit."
        )
        sys.exit(1)
    elif not before:
        console.print(f"{COUNTS.name} has no counts of this interpreter, so nothing was compared.")


def _build() -> str:
    """Return a name for what the counts depend on: the interpreter, its build, the machine, and the native core."""
    flags = f"{sysconfig.get_config_var('CONFIG_ARGS')} {sysconfig.get_config_var('OPT')} {platform.libc_ver()}"
    digest = hashlib.sha256(flags.encode()).hexdigest()[:8]
    core = "with the native core" if has_native_core() else "without the native core"
    return f"{platform.python_implementation()} {platform.python_version()} {platform.machine()} {digest} {core}"


def _has_grown(count: int, before: int | None) -> bool:
    return before is not None and count > before * (1 + TOLERATED)


def _count(names: Sequence[str]) -> dict[str, int]:
    """Return the instructions that each message of the scenes takes."""
    # The first scene with a start stands for the others with the same one.
    starts = {SCENES[name].start: f"{name}=1" for name in reversed(names)}
    pieces = {name: f"{name}={SCENES[name].rounds}" for name in names}
    counted = _instructions([*starts.values(), *pieces.values()])
    return {
        name: _per_message(SCENES[name], counted[starts[SCENES[name].start]], counted[piece])
        for name, piece in pieces.items()
    }


def _per_message(scene: Scene, begun: int, done: int) -> int:
    """Return the instructions for each message, given those of a run that does little but start, and of the scene's."""
    return round((done - begun) / (scene.rounds * scene.messages))


def _instructions(pieces: Sequence[str]) -> dict[str, int]:
    """Do pieces of work under Valgrind; return the instructions of each one's process, with those before its fork."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [sys.executable, "-m", "benchmarks.instructions.scenes", *pieces]
    # The order of sets, and with it the work, must be the same in each run.
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    counted = {number: int(count.replace(",", "")) for number, count in _COUNT.findall(done.stderr)}
    processes = {piece: number for number, piece in map(str.split, done.stdout.splitlines())}
    if done.returncode or not counted.keys() >= {processes.get(piece) for piece in pieces}:
        raise click.ClickException(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return {piece: counted[processes[piece]] for piece in pieces}


if __name__ == "__main__":
    main()
