"""One run of an application: start, supervision and stop, in the foreground or in a thread."""
