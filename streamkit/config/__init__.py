"""Settings from files, environment variables and arguments, each value with the place that sets it.

environment.py         all settings of an application, found by relaxed names
settings.py            what `spring.cloud.stream.*` means, as models
stream_properties.py   the groups of settings of one binding
setting_limits.py      annotations of settings that are ignored or refused
located_errors.py      errors that name the setting and the place that sets it
"""
