"""The small process of ours that makes each world. Standard library only; runs with ``-I -S``.

``main`` waits for requests and forks one *keeper* per command. The keeper (``keeper``) stages what
the world is made of on one sized tmpfs (``stage``), lets bubblewrap assemble it (``assemble``),
watches the process tree (``watch``) and reads back what was asked for (``readback``). It holds the
mount namespace until the end, so that the world's files survive its processes and nothing else.
"""
