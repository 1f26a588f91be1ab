"""How requests are served: dispatched by code, handled in steps, refused when late."""
