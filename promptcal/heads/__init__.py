"""Heads fitted on what prompts have not seen: folds of images and of classes, the fit on them, and its gate."""
