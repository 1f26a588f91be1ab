"""Applications that listen, each a program that runs in its own process and is measured by its parent."""
