"""Learners: one file is one way to make prompts."""
