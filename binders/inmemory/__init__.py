"""The in-memory binder: destinations are queues in this process.

`plugin` offers the binder type, `binder` makes bindings, `broker` holds the destinations, `destination` and `group`
hold messages and queues, `timers` delays messages, `transactions` holds half messages, `consumer`, `polled` and
`producer` are the bindings. Attempts, settlements, partition hash and delay levels are the framework's, as on every
other binder.
"""
