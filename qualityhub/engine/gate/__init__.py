"""The gate: rollups, statistics, policy and the verdict on a pair of checkpoints."""
