"""No network and no socket of the host is within reach; a loopback of its own is."""

from __future__ import annotations

import contextlib
import secrets
import socket
import tempfile

from qualityhub.engine.sandbox.conformance.kit import Kit, check, limited


@check
def check_no_network(kit: Kit) -> str:
    """A server of the host is out of reach by TCP, UDP, name and IPv6; so is the rest."""
    with contextlib.ExitStack() as stack:
        ports = {}
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with contextlib.suppress(OSError):
                stream = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
                stream.bind((address, 0))
                stream.listen()
                ports[address] = stream.getsockname()[1]
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", 0))
        datagrams.settimeout(0.2)
        seen = kit.ask(
            "import json,socket,sys\n"
            "v4,v6,udp=map(int,sys.argv[1:]); done=[]\n"
            "for host,port in (('127.0.0.1',v4),('::1',v6),('192.0.2.1',v4),('2001:db8::1',v4)):\n"
            "    try:\n"
            "        socket.create_connection((host,port),2)\n"
            "        done.append('tcp '+host)\n"
            "    except OSError: pass\n"
            "for family,host in ((socket.AF_INET,'192.0.2.1'),(socket.AF_INET6,'2001:db8::1')):\n"
            "    try:\n"
            "        s=socket.socket(family,socket.SOCK_DGRAM)\n"
            "        s.sendto(b'x',(host,53)); done.append('udp '+host)\n"
            "    except OSError: pass\n"
            "socket.socket(socket.AF_INET,socket.SOCK_DGRAM).sendto(b'leak',('127.0.0.1',udp))\n"
            "try: socket.getaddrinfo('example.org',80); done.append('name')\n"
            "except OSError: pass\n"
            "print(json.dumps(done))",
            str(ports.get("127.0.0.1", 9)),
            str(ports.get("::1", 9)),
            str(datagrams.getsockname()[1]),
        )
        with contextlib.suppress(TimeoutError):
            datagrams.recv(16)
            seen.append("udp 127.0.0.1")
    return f"reached: {', '.join(seen)}" if seen else ""


@check
def check_only_a_loopback(kit: Kit) -> str:
    """The loopback is the only interface, and no route leads away from it."""
    seen = kit.ask(
        "import json\n"
        "read=lambda p: [l.split() for l in open(p)]\n"
        "names=[r[0].split(':')[0] for r in read('/proc/net/dev')[2:]]\n"
        "routes=[r[0] for r in read('/proc/net/route')[1:]]\n"
        "try: routes+=[r[-1] for r in read('/proc/net/ipv6_route')]\n"
        "except OSError: pass\n"
        "print(json.dumps(sorted(set(names+routes))))"
    )
    # The kernel makes these in every new network, without an address.
    idle = {"tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip6tnl0", "ip6gre0", "ip_vti0"}
    more = set(seen) - {"lo", "ip6_vti0"} - idle
    return f"also: {sorted(more)}" if more else ""


@check
def check_no_host_sockets(kit: Kit) -> str:
    """Neither an abstract nor a named unix socket of the host can be reached."""
    name = "qh-" + secrets.token_hex(8)
    with (
        tempfile.TemporaryDirectory(dir=kit.scratch) as folder,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as named,
    ):
        abstract.bind("\0" + name)
        abstract.listen()
        path = f"{folder}/s"
        named.bind(path)
        named.listen()
        seen = kit.ask(
            "import json,socket,sys\n"
            "done=[]\n"
            "for a in ('\\0'+sys.argv[1], sys.argv[2], '/run/docker.sock',\n"
            "          '/var/run/docker.sock',\n"
            "          '/run/podman/podman.sock', '/run/dbus/system_bus_socket'):\n"
            "    s=socket.socket(socket.AF_UNIX)\n"
            "    try: s.connect(a); done.append(a)\n"
            "    except OSError: pass\n"
            "for family in (40,38,16):\n"
            "    try:\n"
            "        kind=socket.SOCK_STREAM if family==40 else socket.SOCK_RAW\n"
            "        s=socket.socket(family, kind)\n"
            "        if family==40 and sys.argv[3]: done.append('vsock')\n"
            "    except OSError: pass\n"
            "print(json.dumps(done))",
            name,
            path,
            "filtered" if limited(kit, "system_calls") else "",
        )
    return f"reached: {seen}" if seen else ""


@check
def check_private_loopback(kit: Kit) -> str:
    """A server inside can be reached from inside by IPv4, IPv6 and the name localhost."""
    seen = kit.ask(
        "import json,os,socket,threading\n"
        "def serve(family,address):\n"
        "    s=socket.create_server((address,0),family=family)\n"
        "    t=threading.Thread(target=lambda:[s.accept()[0].sendall(b'hi') for _ in range(2)])\n"
        "    t.daemon=True; t.start()\n"
        "    return s.getsockname()[1]\n"
        "ask=lambda h,p: socket.create_connection((h,p),5).recv(2).decode()\n"
        "port=serve(socket.AF_INET,'127.0.0.1')\n"
        "done=[ask(h,port) for h in ('127.0.0.1','localhost')]\n"
        "if os.path.exists('/proc/net/if_inet6'):\n"
        "    done.append(ask('::1',serve(socket.AF_INET6,'::1')))\n"
        "print(json.dumps(done))"
    )
    return "" if set(seen) == {"hi"} else f"it answered {seen}"
