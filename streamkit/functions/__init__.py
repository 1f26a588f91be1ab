"""Functions as bindings: plain functions, registered under a name, that settings bind and compose.

`declaration` has the decorator; `signature` reads from annotations what a function takes and gives;
`definition` reads `spring.cloud.function.definition`; `wiring` makes bindings and handlers of both. Messages go
through `pipeline` and, for functions over streams, `streams`; `supplier` calls those that take none, when a
`trigger` says so; `routing` chooses a function for each message.
"""
