"""Training: settings, batches, the loop and prediction."""
