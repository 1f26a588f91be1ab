"""Work that takes longer than a request: it runs on while nobody looks, and pages show how far it is."""
