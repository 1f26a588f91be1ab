"""What `import streamkit` and `import streamkit.messaging` offer."""

import ast
import inspect
import sys

import pytest

import streamkit
from streamkit import errors, messaging


def test_the_list_of_names():
    """These are the names the package exports; to change them is to change the public API."""
    assert streamkit.__all__ == [
        "Accept",
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
        "Settlement",
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


@pytest.mark.parametrize("package", [streamkit, messaging])
def test_every_name_is_there(package):
    """Each name is found, at first and again, and is listed by `dir`."""
    for name in package.__all__:
        assert getattr(package, name) is getattr(package, name)
        assert name in dir(package)


@pytest.mark.parametrize("package", [streamkit, messaging])
def test_type_checkers_see_the_same(package):
    """What is imported for type checkers is what the interpreter finds, from the same modules."""
    imports = ast.walk(ast.parse(inspect.getsource(package)))
    seen = {
        alias.name: node.module
        for node in imports
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("streamkit.")
        for alias in node.names
    }
    assert sorted(seen) == sorted(package.__all__)
    assert seen == package._MODULES
    for name, module in seen.items():
        assert getattr(sys.modules[module] if module in sys.modules else __import__(module, fromlist=[name]), name)


@pytest.mark.parametrize("package", [streamkit, messaging])
def test_an_unknown_name(package):
    """A name that is not exported is an ordinary AttributeError."""
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nonsense'"):
        _ = package.nonsense


def test_the_error_tree_is_drawn_as_it_is():
    """The tree at the top of errors.py names every class, below its parent."""
    drawn = errors.__doc__
    for name, class_ in vars(errors).items():
        if inspect.isclass(class_) and issubclass(class_, errors.StreamkitError):
            assert name in drawn
            parent = class_.__bases__[0].__name__
            assert parent == "Exception" or drawn.index(parent) < drawn.index(name)
