"""QualityHub: judges RL environments and checkpoints."""

__version__ = "0.1.0"
