"""The processes of one command: a supervisor starts, watches, restarts and stops the processes that do the work.

`streamkit run --workers` and `streamkit broker --processes` use this package. It imports nothing of the framework but
`streamkit.service_manager`, because the broker imports little else of it.
"""
