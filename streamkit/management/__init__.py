"""Management of a running application over HTTP: health, bindings and metrics.

health.py                the health of the binders and bindings
metrics.py               counters of messages, fed by the application's signals
lags.py                  the unsettled messages of the inputs, asked from the binders
answers.py               one question to all binders at once, with a time limit
bindings_controller.py   the states of the bindings, listed and changed
endpoint.py              one endpoint, streamkit's own or a plugin's
endpoints.py             an ASGI application of all endpoints
request_guard.py         refusal of requests sent by pages of other sites
problem.py               the response to a refused or failed request
server.py                the endpoints on a port, while the application runs
http_server.py           an HTTP server for an ASGI application
connection.py            one connection of the server, with limits
"""
