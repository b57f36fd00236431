"""Post-hoc calibrators: one file is one map, scikit-learn shaped."""
