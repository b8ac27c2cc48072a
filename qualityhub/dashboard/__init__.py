"""The pages: server-rendered, and readable without script."""
