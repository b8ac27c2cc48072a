"""Dependencies and build."""
