"""Takes memory until it is ended."""
held = []
while True:
    held.append(bytearray(b"x") * (4 << 20))
