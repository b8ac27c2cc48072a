"""Entry points for the queue: load ids, call services, store."""
