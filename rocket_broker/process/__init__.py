"""The broker and the name server as processes: commands, signals and logs."""
