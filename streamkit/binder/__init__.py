"""Binders: what connects an application's channels to a messaging system.

Authors of binders start at :mod:`streamkit.binder.binder`.
"""
