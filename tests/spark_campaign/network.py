"""Machines for the workers of a Spark cluster, made of Linux's network and mount namespaces.

::

    10.77.0.1    master, driver, broker, name server
        │ bridge
        ├──── 10.77.0.2    a worker with its executors and their Python
        └──── 10.77.0.3    another one

A worker has an address and a loopback interface of its own. In place of the run's directory it has an empty file system
in memory, whose content is gone after a kill; only the directories in `SHARED` are those of the other machines.

All this is inside namespaces that :func:`enter` makes for the campaign: nothing outside changes, and nothing is left
when the campaign's processes have ended. An ordinary user may do it where the system allows user namespaces.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from samples.flights.broker_process import Registration
from samples.pipeline.cluster import PROGRAMS, WORKERS, Machine
from tests.end_to_end.broker_process import PATIENT, running
from tests.ports import free_ports

HOST = "10.77.0.1"
"""The address of master, driver, broker and name server."""

SHARED = ("checkpoint", f"cluster/{PROGRAMS}")
"""The directories below a run's that all machines share."""

_ENTERED = "STREAMKIT_SPARK_CAMPAIGN_ENTERED"
_UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--mount")
_ADD_BRIDGE = ("ip", "link", "add", "workers", "type", "bridge")

# The first argument is the run's directory, the others are the program. Only this worker sees what is mounted.
_WITH_OWN_DISK = """
set -e
home=$1 own=$PWD
shift
mkdir -p "$home/disk"
mount -t tmpfs tmpfs "$home/disk"
for shared in {shared}; do
  mkdir -p "$home/disk/$shared"
  mount --bind "$home/$shared" "$home/disk/$shared"
done
mount --rbind "$home/disk" "$home"
mkdir -p "$own"
cd "$own"
exec "$@"
""".format(shared=" ".join(SHARED))


class NamespacesRefusedError(Exception):
    """The system does not allow namespaces, or lacks the programs that make them."""


def enter(arguments: Sequence[str]) -> None:
    """Replace this process by the campaign inside namespaces of its own, unless it is there already.

    Args:
        arguments: The arguments of the campaign's command line.

    Raises:
        NamespacesRefusedError: This machine refuses the namespaces.
    """
    if _ENTERED in os.environ:
        return
    try:
        _run(*_UNSHARE, *_ADD_BRIDGE)
    except OSError as error:
        raise NamespacesRefusedError(f"the program {error.filename} is missing") from error
    except subprocess.CalledProcessError as error:
        raise NamespacesRefusedError(error.stderr.strip()) from error
    command = [*_UNSHARE, sys.executable, "-m", "tests.spark_campaign", *arguments]
    os.execvpe(command[0], command, os.environ | {_ENTERED: "1"})


class Network:
    """The network of all machines; one for a process that has entered its namespaces.

    Args:
        directory: For the files that keep the workers' namespaces.
    """

    def __init__(self, directory: Path) -> None:
        _run("ip", "link", "set", "lo", "up")
        _run(*_ADD_BRIDGE)
        _run("ip", "address", "add", f"{HOST}/24", "dev", "workers")
        _run("ip", "link", "set", "workers", "up")
        self._namespaces = [directory / f"worker-{number}" for number in range(WORKERS)]
        for number, namespace in enumerate(self._namespaces):
            self._connect(number, namespace)

    def workers(self, directory: Path) -> list[Machine]:
        """Return the machines of the workers.

        Args:
            directory: The run's directory, in place of which each of them has a disk of its own.
        """
        for shared in SHARED:
            (directory / shared).mkdir(parents=True, exist_ok=True)
        own_disk = ("unshare", "--mount", "sh", "-c", _WITH_OWN_DISK, "sh", str(directory.resolve()))
        return [
            Machine(_address(number), (*_inside(namespace), *own_disk))
            for number, namespace in enumerate(self._namespaces)
        ]

    @contextmanager
    def registration(self, directory: Path) -> Iterator[Registration]:
        """Run a name server, and provide the settings of a broker that registers there.

        Args:
            directory: For the settings and the broker's store.
        """
        name_server_port, port = free_ports()
        of_name_server = _settings(
            directory / "namesrv.conf",
            listenPort=name_server_port,
            bindAddress=HOST,
            kvConfigPath=directory / "kvConfig.json",
        )
        with running("namesrv", "-c", str(of_name_server), cwd=directory) as server:
            server.address()
            name_server = f"{HOST}:{name_server_port}"
            of_broker = _settings(
                directory / "broker.conf",
                namesrvAddr=name_server,
                listenPort=port,
                bindAddress=HOST,
                brokerIP1=HOST,
                storePathRootDir=directory / "store",
                **PATIENT,
            )
            yield Registration(name_server, of_broker)

    def close(self) -> None:
        """Release the workers' namespaces, which end with their last process."""
        for namespace in self._namespaces:
            _run("umount", str(namespace))

    def _connect(self, number: int, namespace: Path) -> None:
        outside = f"worker-{number}"
        namespace.touch()
        _run("unshare", f"--net={namespace}", "ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", str(namespace))
        _run("ip", "link", "set", outside, "master", "workers", "up")
        _run(*_inside(namespace), "ip", "address", "add", f"{_address(number)}/24", "dev", "eth0")
        _run(*_inside(namespace), "ip", "link", "set", "eth0", "up")


def _settings(path: Path, **settings: object) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def _address(worker: int) -> str:
    return f"10.77.0.{2 + worker}"


def _inside(namespace: Path) -> tuple[str, ...]:
    return "nsenter", f"--net={namespace}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
