"""The Kafka binder without its client library."""

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["kafka"] = None  # what the import system takes for a missing module
from streamkit import StreamApplication

settings = {"default-binder": "kafka", "bindings.orders.destination": "orders"}
app = StreamApplication(properties={f"spring.cloud.stream.{key}": value for key, value in settings.items()})

@app.stream_listener("orders")
def take(order: str) -> None: ...

app.run()
"""


def test_missing_client_library_is_reported_with_the_package_to_install() -> None:
    """In one line, without a traceback."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        done.stderr
        == "Error: binder 'kafka' needs the package kafka-python: pip install 'streamkit-messaging[kafka]'\n"
    )
