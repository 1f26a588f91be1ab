"""What `import streamkit` offers, and what it costs."""

import ast
import inspect
import subprocess
import sys

import pytest

import streamkit
from streamkit import errors


def test_the_list_of_names():
    """These are the names the package exports; to change them is to change the public API."""
    assert streamkit.__all__ == [
        "Acknowledgment",
        "ChannelInterceptor",
        "ErrorMessage",
        "Header",
        "Headers",
        "Message",
        "MessageChannel",
        "MessageConverter",
        "MessageHeaders",
        "Payload",
        "Processor",
        "Reject",
        "Requeue",
        "Sink",
        "Source",
        "StreamApplication",
        "StreamBridge",
        "StreamkitError",
        "TransactionState",
        "enable_binding",
        "error_listener",
        "function",
        "input_channel",
        "output_channel",
        "send_to",
        "stream_listener",
        "transaction_listener",
    ]


@pytest.mark.parametrize("name", streamkit.__all__)
def test_every_name_is_there(name):
    """Each name is found, at first and again, and is listed by `dir`."""
    assert getattr(streamkit, name) is getattr(streamkit, name)
    assert name in dir(streamkit)


def test_type_checkers_see_the_same():
    """What is imported for type checkers is what the interpreter finds, from the same modules."""
    imports = ast.walk(ast.parse(inspect.getsource(streamkit)))
    seen = {
        alias.name: node.module
        for node in imports
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("streamkit.")
        for alias in node.names
    }
    assert sorted(seen) == sorted(streamkit.__all__)
    for name, module in seen.items():
        assert getattr(
            sys.modules[module] if module in sys.modules else __import__(module, fromlist=[name]), name
        )


def test_an_unknown_name():
    """A name that is not exported is an ordinary AttributeError."""
    with pytest.raises(AttributeError, match="module 'streamkit' has no attribute 'nonsense'"):
        _ = streamkit.nonsense


def test_importing_costs_nothing():
    """`import streamkit` loads nothing heavy: neither its own parts nor what they stand on."""
    script = "import sys, streamkit; print(*sorted({name.partition('.')[0] for name in sys.modules}), *sys.modules)"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(printed.stdout.split())
    assert loaded.isdisjoint(
        {"pydantic", "pydantic_settings", "msgspec", "asyncio", "blinker", "rich", "yaml"}
    )
    assert {name for name in loaded if name.startswith("streamkit.")} == set()


def test_the_error_tree_is_drawn_as_it_is():
    """The tree at the top of errors.py names every class, below its parent."""
    drawn = errors.__doc__
    for name, class_ in vars(errors).items():
        if inspect.isclass(class_) and issubclass(class_, errors.StreamkitError):
            assert name in drawn
            parent = class_.__bases__[0].__name__
            assert parent == "Exception" or drawn.index(parent) < drawn.index(name)
