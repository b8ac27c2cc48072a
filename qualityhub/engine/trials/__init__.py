"""Plan, run and keep trials; the small programs that run inside the sandbox."""
