"""Everything on one machine: embedded database and broker, supervisor, first run."""
