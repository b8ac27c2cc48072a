"""REST: HTTP in, HTTP out. Rules live in the services it calls."""
