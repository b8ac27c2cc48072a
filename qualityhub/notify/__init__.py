"""Channels that tell people what happened; none is built in yet, the audit log has it all."""
