"""`python -m pyspark_rocketmq.package`: the file that executors of a cluster need."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark_rocketmq.package import main

READ_AND_WRITE = """
import pyspark_rocketmq.reading, pyspark_rocketmq.sink, pyspark_rocketmq.batch_reader, pyspark_rocketmq.stream_reader
"""
CONNECT = """
import pyspark_rocketmq, rocket_client.blocking
"""
PRINT = """
from rocket_remoting.wire.compression import CompressionType, compress, decompress
for kind in CompressionType:
    assert decompress(compress(b"body", kind), kind.sys_flag) == b"body"
print(pyspark_rocketmq.__file__, sys.modules["msgspec"].__file__, sep="\\n")
"""


def packed(archive: Path, *options: str) -> Path:
    """Write the archive."""
    done = CliRunner().invoke(main, [str(archive), *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return archive


def executor(directory: Path, *names: str) -> Path:
    """Return a directory with these packages alone, as an executor's Python may have them."""
    directory.mkdir()
    for name in names:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        (directory / name).symlink_to(package)
        if (libraries := package.with_name(f"{name}.libs")).exists():
            (directory / libraries.name).symlink_to(libraries)
    return directory


def imported(program: str, *path: Path) -> list[str]:
    """Return the files of two packages that an executor's Python imports."""
    command = [sys.executable, "-I", "-S", "-c", f"import sys\nsys.path[1:1] = sys.argv[1:]{program}{PRINT}"]
    done = subprocess.run([*command, *map(str, path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_unpacked_archive_needs_only_arrow(tmp_path: Path) -> None:
    """Readers and writers work with what is in it beside PySpark, pyarrow and numpy; pandas is not needed."""
    with ZipFile(packed(tmp_path / "rocketmq.zip")) as archive:
        archive.extractall(tmp_path / "unpacked")
    has = executor(tmp_path / "has", "pyspark", "py4j", "pyarrow", "numpy")
    found = imported(READ_AND_WRITE, tmp_path / "unpacked", has)
    assert all(file.startswith(str(tmp_path / "unpacked")) for file in found)


def test_pure_archive_is_imported_as_it_is(tmp_path: Path) -> None:
    """Compiled packages are then those of the executor."""
    archive, again = (packed(tmp_path / name, "--pure") for name in ("rocketmq.zip", "again.zip"))
    has = executor(tmp_path / "has", "msgspec", "lz4", "zstandard")
    own, compiled = imported(CONNECT, archive, has)
    assert own.startswith(str(archive))
    assert compiled.startswith(str(has))
    assert archive.read_bytes() == again.read_bytes()


def test_archive_needs_its_suffix(tmp_path: Path) -> None:
    """Spark would copy another file without unpacking it."""
    done = CliRunner().invoke(main, [str(tmp_path / "rocketmq")])
    assert done.exit_code == 2
    assert "does not end in .zip" in done.output
