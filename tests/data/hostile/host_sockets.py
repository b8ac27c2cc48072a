"""Sockets of the host: abstract, named, other families."""
import socket
import sys
import tools
reached = []
for address in ("\0" + sys.argv[1], sys.argv[2], "/run/docker.sock", "/var/run/docker.sock",
                "/run/podman/podman.sock", "/run/dbus/system_bus_socket", "\0/tmp/.X11-unix/X0"):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        if tools.can(lambda: socket.socket(socket.AF_UNIX, kind).connect(address)):
            reached.append(address)
try:
    with open("/proc/net/unix") as file:
        if sys.argv[1] in file.read():
            reached.append("listed")
except OSError:
    pass
tools.tell(reached)
