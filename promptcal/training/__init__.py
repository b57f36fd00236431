"""Training: the loop, gradient rules, averaging and prediction."""
