"""Metrics: plain functions of probabilities and labels."""
