"""Which Python Spark starts, and where PySpark must be for it to be found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamkit.spark.cache import cache_directory

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the program is a script")

VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def test_on_a_cluster_s_machines_nothing_of_this_one_s_cache_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session there that follows one here has this interpreter's path; what the user has set stays."""
    pytest.importorskip("pyspark")
    from streamkit.spark.python import choose_python

    monkeypatch.setenv("STREAMKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "environ", {k: v for k, v in os.environ.items() if k not in VARIABLES})
    choose_python(is_local=True)
    assert {Path(os.environ[variable]).parents[1] for variable in VARIABLES} == {tmp_path}
    choose_python(is_local=False)
    assert {os.environ[variable] for variable in VARIABLES} == {sys.executable}
    monkeypatch.setenv("PYSPARK_PYTHON", "python3.13")
    choose_python(is_local=True)
    assert os.environ["PYSPARK_PYTHON"] == "python3.13"


@pytest.mark.parametrize(("shown", "is_wrapped"), [("sys.path", False), ("PYTHONPATH", True)])
def test_pyspark_that_only_the_driver_finds(tmp_path: Path, shown: str, is_wrapped: bool) -> None:
    """Its workers need Spark's zip files: a path in the environment reaches them, one in the program does not."""
    packages = tmp_path / "packages"
    for name in ("pyspark", "py4j"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").touch()
    shared = [packages] if shown == "PYTHONPATH" else []
    path = os.pathsep.join(map(str, (*shared, os.environ.get("PYTHONPATH", ""))))
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from streamkit.spark.python import local_python\n"
        "print(local_python() != sys.executable)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, str(packages)],
        env={**os.environ, "PYTHONPATH": path, "STREAMKIT_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == f"{is_wrapped}\n"


def test_a_relative_cache_is_found_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's processes have directories of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMKIT_CACHE", "cache")
    assert cache_directory() == tmp_path / "cache"
