"""Functions as bindings: plain functions, registered by name, that settings bind and compose.

`signature` reads the inputs and outputs of a function from its annotations. `definition` parses
`spring.cloud.function.definition`. `catalog` finds the functions of a definition, and `wiring` creates their stages
and suppliers. Messages pass through the stages of `pipeline` and, for functions over streams, of `streams`. `supplier`
calls functions without inputs at the times of a `trigger`. `routing` selects a function for each message.
"""
