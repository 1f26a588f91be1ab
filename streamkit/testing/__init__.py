"""Testing: virtual time, the application harness, the contract suite for binders, a pytest plugin.

Import what you need from its module; importing this package costs nothing.
"""
