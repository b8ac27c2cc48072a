"""Every way out: loopback of the host, metadata addresses, names, raw packets."""
import socket
import sys
import tools
reached = []
for host, port in (("127.0.0.1", int(sys.argv[1])), ("::1", int(sys.argv[1])), ("169.254.169.254", 80),
                   ("100.100.100.200", 80), ("fd00:ec2::254", 80), ("192.0.2.1", 80), ("8.8.8.8", 53),
                   ("172.17.0.1", int(sys.argv[1])), ("10.0.2.2", 22)):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(0.3)
        if tools.can(lambda: one.connect((host, port))):
            reached.append("tcp " + host)
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        if not host.startswith(("127.", "::1")) and tools.can(lambda: one.sendto(b"x", (host, port))):
            reached.append("udp " + host)
for name in ("example.org", "metadata.google.internal", "host.docker.internal"):
    if tools.can(lambda: socket.getaddrinfo(name, 80)):
        reached.append("name " + name)
names = [name for _, name in socket.if_nameindex()]
tools.tell(reached, interfaces=names)
