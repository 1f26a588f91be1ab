"""`python -m benchmarks.commands`: the CPU that each command takes before its first request.

Each command runs in processes of its own and asks a name server that does not exist, so it ends where its first answer
would begin. The first run is not counted: it writes the byte code.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import click

NOWHERE = "127.0.0.1:1"
SETTINGS = f"spring.cloud.stream.rocketmq.binder.name-server={NOWHERE}\n"
COMMANDS = (
    "--help",
    "cluster",
    "topic list",
    "topic stats orders",
    "group list",
    "top --rounds 1",
    "broker list",
    "offset show kitchen",
    "message show 1",
    "message query orders --key 1",
    "message tail orders",
    "dlq list",
    "trace show 1",
    "wire --read missing.pcap",
    "doctor --for 0",
    "send orders tea",
    "tail orders",
    "config report",
)


def cpu_seconds(command: str, directory: Path) -> float:
    """Return the user and system time of one run of a command."""
    # Byte code is written as an installation does it, whatever this shell says.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    arguments = [sys.executable, "-m", "streamkit.cli", *command.split()]
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, (str(Path.cwd()), variables.get("PYTHONPATH"))))}
    subprocess.run(arguments, cwd=directory, env=variables | paths, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@click.command()
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Runs; the best counts.")
def main(*, runs: int) -> None:
    """Measure each command in the directory of an application."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "application.properties").write_text(SETTINGS)
        for command in COMMANDS:
            cpu_seconds(command, directory)
            best = min(cpu_seconds(command, directory) for _ in range(runs))
            click.echo(f"{best:5.2f} s  streamkit {command}")


if __name__ == "__main__":
    main()
