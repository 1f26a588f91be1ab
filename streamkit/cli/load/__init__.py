"""The load of `streamkit bench`: what is sent, what becomes of it, and how long it takes."""
