"""Format and schema."""
