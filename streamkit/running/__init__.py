"""One run of an application: started, watched, stopped; in the foreground or beside the program's own work."""
