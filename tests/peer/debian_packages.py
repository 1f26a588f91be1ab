"""Programs from Debian's packages, unpacked into the cache directory of the tests; nothing is installed."""

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.peer.artifacts import cache_directory, digest, locked, program, run

NEW = re.compile(r"^Inst (\S+) \(", re.MULTILINE)
"""A package that an installation would add; one that it would upgrade has its old version before the parenthesis."""

NOT_NEEDED = re.compile(r"libllvm|perl|.*-common$|ssl-cert|lsb-|ucf")
"""What servers load only for what no test does, and scripts for services of the machine."""


@dataclass(frozen=True)
class UnpackedPackages:
    """The files of some packages below a directory that stands for `/`."""

    root: Path

    def environment(self) -> dict[str, str]:
        """Return the environment in which programs find the packages' libraries."""
        folders = sorted({str(file.parent) for file in self.root.glob("**/lib/**/*.so*")})
        return {"LD_LIBRARY_PATH": os.pathsep.join(folders)} if folders else {}


def unpacked(*names: str) -> UnpackedPackages:
    """Return packages and whatever they need that this machine lacks, downloaded once per machine.

    Raises:
        PeersUnavailableError: The machine has no apt, or its sources can't be reached.
    """
    apt, lists = program("apt-get"), cache_directory() / "apt"
    with locked(cache_directory() / "debian-packages.lock"):
        known = cache_directory() / f"debian-{names[0]}-{digest([Path('/etc/os-release')], repr(names))}"
        if not known.exists():
            # Lists of its own: those of the machine may be absent, as in images for containers, or locked.
            for folder in ("lists/partial", "archives/partial"):
                (lists / folder).mkdir(parents=True, exist_ok=True)
            options = [f"Dir::State::lists={lists}/lists", f"Dir::Cache={lists}", "APT::Sandbox::User=root"]
            options += ["Debug::NoLocking=1", "Acquire::Retries=3"]
            apt_get = [apt, "-q", *(f"-o{option}" for option in options)]
            run([*apt_get, "update"])
            added = NEW.findall(run([*apt_get, "install", "--simulate", "--no-install-recommends", *names]))
            wanted = [*names, *(name for name in added if name not in names and not NOT_NEEDED.match(name))]
            with tempfile.TemporaryDirectory(dir=cache_directory()) as scratch:
                run([*apt_get, "download", *wanted], cwd=Path(scratch))
                made = Path(scratch) / "root"
                for package in sorted(Path(scratch).glob("*.deb")):
                    run([program("dpkg-deb"), "--extract", str(package), str(made)])
                made.rename(known)
    return UnpackedPackages(known)
