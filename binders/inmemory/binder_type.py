"""The type by which settings name this binder."""

TYPE = "inmemory"
