"""Sub-commands of the command line: one file is one command."""
