"""People, teams, tokens, sign-in, and who may see what."""
