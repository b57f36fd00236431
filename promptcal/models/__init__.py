"""Models: the frozen CLIP, its prompted text pass and the bound classifier."""
