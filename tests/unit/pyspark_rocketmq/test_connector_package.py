"""The connector's import cost and its behaviour without dependencies."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

import pyspark_rocketmq


def modules_after(statement: str) -> set[str]:
    """Return the modules of a fresh interpreter after a statement."""
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_package_imports_nothing() -> None:
    """Spark imports it in every session, used or not."""
    assert not {name for name in modules_after("import pyspark_rocketmq") if "pyspark." in name}
    assert pyspark_rocketmq.DefaultSource.name() == "rocketmq"
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = pyspark_rocketmq.other


def test_format_without_its_dependencies_is_skipped() -> None:
    """Otherwise the session would lose all Python formats."""
    program = """
import sys
sys.modules["pyspark"] = None
import pyspark_rocketmq
assert not hasattr(pyspark_rocketmq, "DefaultSource")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_driver_imports_no_decoder() -> None:
    """Nor the framework, so that planning processes start fast."""
    found = modules_after("import pyspark_rocketmq.source")
    assert not {name for name in found if name.partition(".")[0] in {"streamkit", "rocket_broker", "pandas"}}
    assert "pyspark_rocketmq.decode" not in found
    assert "asyncio" not in found
