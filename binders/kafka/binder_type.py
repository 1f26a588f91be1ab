"""The name of this binder type in settings."""

TYPE = "kafka"
