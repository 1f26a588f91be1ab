"""The virtual environment of the other systems' packages: the benchmarks' own, made in the cache when first needed."""

import hashlib
import platform
import subprocess
import sys

from tests.peer.artifacts import cache_directory, locked

__all__ = ["PACKAGES", "other_python"]

PACKAGES = {
    "faststream": "0.7.8",
    "taskiq": "0.13.0",
    "aiokafka": "0.14.0",
    "confluent-kafka": "2.16.1",
    "nats-py": "2.16.0",
    "redis": "8.1.0",
    "rocketmq": "0.4.4",
    "uvloop": "0.23.0",
}
"""The measured packages and their versions."""


def other_python() -> str:
    """Return the interpreter that has `PACKAGES`; the first call downloads them."""
    pins = [f"{name}=={version}" for name, version in PACKAGES.items()]
    digest = hashlib.sha256(" ".join(pins).encode()).hexdigest()[:8]
    home = cache_directory() / f"other-clients-{platform.python_version()}-{digest}"
    python = home / "bin" / "python"
    with locked(cache_directory() / "other-clients.lock"):
        if not (home / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *pins], check=True)
            (home / "complete").touch()
    return str(python)
