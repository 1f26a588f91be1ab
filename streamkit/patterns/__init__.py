"""Patterns for reliable messaging, on top of the framework: `pip install 'streamkit-messaging[patterns]'`.

Nothing of the framework imports this package.
"""
