"""The exported names of `streamkit` and `streamkit.messaging`."""

import ast
import inspect
import sys

import pytest

import streamkit
from streamkit import errors, messaging


def test_list_of_exported_names():
    """To change it is to change the public API."""
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
def test_exported_names_exist(package):
    """At the first and later accesses, and in `dir`."""
    for name in package.__all__:
        assert getattr(package, name) is getattr(package, name)
        assert name in dir(package)


@pytest.mark.parametrize("package", [streamkit, messaging])
def test_type_checkers_see_the_same_names(package):
    """From the same modules as the interpreter."""
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
def test_unknown_name_is_an_attribute_error(package):
    """A name that is not exported is an ordinary AttributeError."""
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nonsense'"):
        _ = package.nonsense


def test_error_tree_matches_its_drawing():
    """The tree at the top of errors.py has every class below its parent."""
    drawn = errors.__doc__
    for name, class_ in vars(errors).items():
        if inspect.isclass(class_) and issubclass(class_, errors.StreamkitError):
            assert name in drawn
            parent = class_.__bases__[0].__name__
            assert parent == "Exception" or drawn.index(parent) < drawn.index(name)
