"""Testing: virtual time, the application harness, the contract suite for binders, a pytest plugin.

Import each name from its module; importing this package imports nothing else.
"""
