"""Content of ``qualityhub up --demo``: environments of five domains and two checkpoints."""
