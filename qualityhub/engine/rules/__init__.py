"""The catalogue: one module per rule, one package per family."""
