"""Settings: read from files, environment and arguments, with the place each value was set.

environment.py         all settings of an application, looked up by relaxed names
settings.py            what `spring.cloud.stream.*` means, as pydantic-settings models
stream_properties.py   the groups of settings of one binding
support.py             how a setting says that it is not, or not fully, honoured
"""
