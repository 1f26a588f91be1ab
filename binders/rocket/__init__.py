"""The RocketMQ binder: channels on the bundled broker or on a cluster of Apache's.

`plugin` is what the framework finds; `binder` connects, and `discovery` asks the brokers what they can do; `producer`
and `consumer` carry messages, `polled` those that are asked for, `transactions` those that a local transaction decides
about; `headers` maps headers to properties on the wire and back; `properties` are the settings of both generations,
`client_settings` what the client gets of them. `spark` tells how Spark reads and writes destinations by itself.
"""
