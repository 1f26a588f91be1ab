"""The RocketMQ binder: channels on the bundled broker or on a cluster of Apache's.

`plugin` is what the framework finds; `binder` connects; `producer` and `consumer` carry messages; `headers` maps
them to properties on the wire and back; `properties` are the settings of both generations.
"""
