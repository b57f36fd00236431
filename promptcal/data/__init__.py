"""Data: cards, readers, splits, image views and the feature cache."""
