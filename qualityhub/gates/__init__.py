"""Checkpoints, evaluation runs, rollouts, and the gates that compare them."""
