"""What an environment is: one reader per format. Parsing only; nothing is imported."""
