"""The environment of a measured process, and its CPU and memory, from Linux's `/proc`."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def variables_of(checkout: Path) -> dict[str, str]:
    """Return the environment of a process that imports a checkout, and writes byte code as an installation does."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return variables | {"PYTHONPATH": str(checkout)}


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of the process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def anonymous_mib(pid: int) -> float:
    """Memory of the process that no file backs, in MiB: heap and stacks, not mapped store files."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/{pid}/smaps_rollup has no line 'Anonymous:'")


def resident_mib(pid: int) -> float:
    """Resident memory of the process in MiB, mapped files included."""
    return _status_mib(pid, "VmRSS")


def resident_peak_mib(pid: int) -> float:
    """The maximum of `resident_mib` so far."""
    return _status_mib(pid, "VmHWM")


def _status_mib(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/{pid}/status has no line '{name}:'")
