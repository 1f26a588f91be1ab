"""What an application is told, and how its bindings and listeners are made of it."""
