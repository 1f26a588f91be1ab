"""PostgreSQL, MariaDB and Redis on free loopback ports, each with a temporary data directory.

A server that the machine has is used; otherwise Debian's packages are unpacked into the cache. The servers do not wait
for the disk, since nobody reads the data after the session. The kernel ends them with the process that started them.
"""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.peer.artifacts import PeersUnavailableError, program
from tests.peer.child_process import ChildProcess
from tests.peer.debian_packages import UnpackedPackages, unpacked
from tests.ports import free_ports

START_TIMEOUT = 120.0
NOBODY = "nobody"


class DatabaseServer:
    """A running server, until `stop`, and again after `start`, with its data.

    Attributes:
        url: The database `test` on it, as SQLAlchemy writes URLs, without a driver.
    """

    def __init__(
        self,
        url: str,
        command: Sequence[str],
        *,
        home: Path,
        environment: Mapping[str, str],
        ready: str,
        end: signal.Signals = signal.SIGKILL,
    ) -> None:
        """Start it and return when it serves.

        Args:
            url: See the attribute.
            command: The server's program and arguments.
            home: Its directory, removed at the end.
            environment: What it needs in its environment.
            ready: Text that is part of the line it prints when it serves.
            end: The signal that ends it at once.
        """
        self.url = url
        self._command = command
        self._home = home
        self._environment = environment
        self._ready = ready
        self._end = end
        self._process: ChildProcess | None = None
        try:
            self.start()
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise

    def __repr__(self) -> str:
        """Name the URL."""
        return f"DatabaseServer({self.url!r})"

    def __enter__(self) -> Self:
        """Return itself, already running."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it and forget its data."""
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def log(self) -> str:
        """Return the last lines that it printed."""
        return self._process.tail() if self._process else "(stopped)"

    def start(self) -> None:
        """Start it on its data and return when it serves.

        Raises:
            subprocess.SubprocessError: It ended instead, or was not ready in time.
        """
        known, ready = threading.Event(), threading.Event()

        def read(line: str) -> None:
            if self._ready in line:
                ready.set()
                known.set()

        self._process = ChildProcess(
            ["/bin/sh", "-c", 'exec "$0" "$@" 2>&1', *as_nobody(self._end), *self._command],
            log=self._home / "errors.log",
            environment=self._environment,
            on_line=read,
            on_end=known.set,
        )
        known.wait(START_TIMEOUT)
        if not ready.is_set():
            told = self._process.tail()
            self._process.kill()
            self._process = None
            raise subprocess.SubprocessError(f"{Path(self._command[0]).name} does not serve:\n{told}")

    def stop(self) -> None:
        """End it at once; committed data is still there after `start`."""
        if self._process is not None and self._process.running:
            os.kill(self._process.pid, self._end)
        if self._process is not None:
            self._process.stop(START_TIMEOUT)
            self._process = None


def postgresql_server() -> DatabaseServer:
    """Start PostgreSQL.

    Raises:
        PeersUnavailableError: The machine has none and can't get it.
    """
    programs, environment = postgresql_programs()
    home, (port, _) = new_home("postgresql-"), free_ports()
    if not readable_by_all(programs):
        # PostgreSQL looks for its programs with its user's own rights. Its folders find each other by their places.
        prefix = programs.parents[3]
        shutil.copytree(prefix, home / "usr", symlinks=True)
        programs = home / "usr" / programs.relative_to(prefix)
    user = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
    prepare([str(programs / "initdb"), f"--pgdata={home}/data", *user], environment)
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        "fsync": "off",
        "log_line_prefix": "",
        "jit": "off",
        "logging_collector": "off",
    }
    command = [str(programs / "postgres"), "-D", f"{home}/data", *(f"--{key}={each}" for key, each in settings.items())]
    return DatabaseServer(
        f"postgresql://postgres@127.0.0.1:{port}/postgres",
        command,
        home=home,
        environment=environment,
        ready="database system is ready to accept connections",
        end=signal.SIGQUIT,  # "immediate" for PostgreSQL, which removes its shared memory then
    )


def postgresql_programs() -> tuple[Path, dict[str, str]]:
    """Return the folder of PostgreSQL's programs, the newest that the machine has, and their environment.

    Raises:
        PeersUnavailableError: The machine has none and can't get it.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: float(file.parts[-3]))
    if found:
        return found[-1].parent, {}
    packages = unpacked("postgresql")
    return next(packages.root.glob("usr/lib/postgresql/*/bin")), packages.environment()


def mariadb_server() -> DatabaseServer:
    """Start MariaDB.

    Raises:
        PeersUnavailableError: The machine has none and can't get it.
    """
    packages = mariadb_packages()
    environment = packages.environment() if packages.root != Path("/") else {}
    home, (port, _) = new_home("mariadb-"), free_ports()
    server = str(packages.root / "usr/sbin/mariadbd")
    places = [f"--basedir={packages.root}/usr", f"--datadir={home}/data"]
    quick = ["--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M"]
    prepare([server, "--no-defaults", "--bootstrap", *places, *quick], environment, mariadb_tables(packages, home))
    first = home / "first.sql"
    first.write_text("CREATE DATABASE IF NOT EXISTS test CHARACTER SET utf8mb4;\n")
    first.chmod(0o644)
    options = [
        "--no-defaults",
        *places,
        "--bind-address=127.0.0.1",
        f"--port={port}",
        f"--socket={home}/socket",
        f"--pid-file={home}/pid",
        f"--init-file={first}",
        *quick,
    ]
    return DatabaseServer(
        f"mariadb://root@127.0.0.1:{port}/test",
        [server, *options],
        home=home,
        environment=environment,
        ready="ready for connections",
    )


def mariadb_tables(packages: UnpackedPackages, home: Path) -> str:
    """Return the statements that make the tables of the system and a root without a password.

    They are those of `mariadb-install-db`, a script that needs programs of further packages.
    """
    (home / "data").mkdir()
    shutil.chown(home / "data", home.owner(), home.group())
    scripts = [packages.root / f"usr/share/mysql/mysql_system_tables{part}.sql" for part in ("", "_data")]
    begin = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n"
    return begin + "".join(script.read_text() for script in scripts)


def mariadb_packages() -> UnpackedPackages:
    """Return where MariaDB is: below `/` if the machine has it.

    Raises:
        PeersUnavailableError: The machine has none and can't get it.
    """
    if Path("/usr/sbin/mariadbd").exists():
        return UnpackedPackages(Path("/"))
    return unpacked("mariadb-server-core")


def redis_server() -> DatabaseServer:
    """Start Redis, without persistence.

    Raises:
        PeersUnavailableError: The machine has none and can't get it.
    """
    server, environment = redis_program()
    home, (port, _) = new_home("redis-"), free_ports()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(home), "--save", "", "--appendonly", "no"]
    return DatabaseServer(
        f"redis://127.0.0.1:{port}/0",
        [str(server), *options],
        home=home,
        environment=environment,
        ready="Ready to accept connections",
    )


def redis_program() -> tuple[Path, dict[str, str]]:
    """Return the server's program and its environment.

    Raises:
        PeersUnavailableError: The machine has none and can't get it.
    """
    found = shutil.which("redis-server")
    if found is not None:
        return Path(found), {}
    packages = unpacked("redis-server", "redis-tools")
    return packages.root / "usr/bin/redis-server", packages.environment()


SERVERS: Mapping[str, Callable[[], DatabaseServer]] = {
    "postgresql": postgresql_server,
    "mariadb": mariadb_server,
    "redis": redis_server,
}
"""How each server is started."""


def prepared() -> Mapping[str, Callable[[], object]]:
    """Return what gets each server's programs onto this machine, by the server's name."""
    return {"postgresql": postgresql_programs, "mariadb": mariadb_packages, "redis": redis_program}


def readable_by_all(folder: Path) -> bool:
    """Return whether every user may enter a folder."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in (folder, *folder.parents))


def new_home(prefix: str) -> Path:
    """Make a directory that belongs to the user that servers run as."""
    home = Path(tempfile.mkdtemp(prefix=prefix))
    if os.getuid() == 0:
        nobody = pwd.getpwnam(NOBODY)
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
    return home


def as_nobody(end: signal.Signals | None = None) -> list[str]:
    """Return the beginning of a command that runs a server as a user whom it accepts: not as root.

    The user keeps root's right to read the cache, which may be in root's home.

    Args:
        end: The signal that the process gets when its parent ends.
    """
    command = [program("setpriv")]
    if os.getuid() == 0:
        nobody = pwd.getpwnam(NOBODY)
        command += [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
        command += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    if end is not None:
        command += ["--pdeathsig", end.name.removeprefix("SIG")]
    return command


def prepare(command: Sequence[str], environment: Mapping[str, str], given: str = "") -> None:
    """Run a program that makes the first data of a server; it reads the text `given`.

    Raises:
        PeersUnavailableError: It failed; the text holds what it printed last.
    """
    done = subprocess.run(
        [*as_nobody(), *command],
        env={**os.environ, **environment},
        cwd="/",
        input=given,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT,
        check=False,
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise PeersUnavailableError(f"{Path(command[0]).name}: {'; '.join(lines[-5:])}")
