"""The Python that Spark starts, and how it finds PySpark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamkit.spark.cache import cache_directory

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the program is a script")

VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def test_cache_of_the_driver_is_not_used_on_cluster_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later session has this interpreter's path; what the user has set stays."""
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
def test_pyspark_found_only_by_the_driver_is_added_to_the_path(tmp_path: Path, shown: str, is_wrapped: bool) -> None:
    """Workers need Spark's zip files: they see a path in the environment, but not one set in the program."""
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
    reported = subprocess.run(
        [sys.executable, "-c", program, str(packages)],
        env={**os.environ, "PYTHONPATH": path, "STREAMKIT_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert reported.stdout == f"{is_wrapped}\n"


def test_relative_cache_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's processes have other working directories."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMKIT_CACHE", "cache")
    assert cache_directory() == tmp_path / "cache"
