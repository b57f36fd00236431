"""Loss terms: one file is one term."""
