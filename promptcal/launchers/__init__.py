"""Where the runs of a sweep are done; one module is one launcher."""
