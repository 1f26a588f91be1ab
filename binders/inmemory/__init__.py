"""The in-memory binder: destinations are queues in this process.

`plugin` is what the framework finds; `binder` makes the bindings; `broker` holds the destinations, each a
`destination` with its `group`s; `timers` delays; `consumer` and `producer` carry messages. Attempts,
settlement, partition hash and the table of delays are the framework's, the same as on every other binder.
"""
