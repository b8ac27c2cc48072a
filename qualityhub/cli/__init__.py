"""The command line: argument parsing, printing and exit codes around the engine and the client."""
