"""The Kafka binder: channels on Apache Kafka, with the headers and the settings of Spring's Kafka binder.

`plugin` is what the framework finds; `binder` connects and looks after `topics`. `producer` makes records of
messages, `sending` sends them. `fetching` polls on a thread of its own, `consumer` hands what comes to the
`partition`s, `handling` calls the receiver and settles, `dead_letter` keeps what is rejected; `polled` waits to be
asked instead. `transactions` commit sends and offsets together. `headers` maps headers; `properties` and
`binder_properties` are settings, and `client_config` and `clients` make kafka-python's clients of them.
"""
