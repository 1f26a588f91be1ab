"""Typed settings under Apache's keys, read from properties files."""
