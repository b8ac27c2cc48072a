"""No network, no process and no open file of the host is within reach."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile

from qualityhub.engine.sandbox.conformance.kit import Kit, check, host_file, limited


@check
def check_no_network(kit: Kit) -> str:
    """A server of the host is out of reach by TCP, UDP and name; so is the outside."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        port = server.getsockname()[1]
        seen = kit.ask(
            "import json,socket,sys\n"
            "done=[]\n"
            "for host in ('127.0.0.1','192.0.2.1','::1'):\n"
            "    try:\n"
            "        socket.create_connection((host,int(sys.argv[1])),2)\n"
            "        done.append('tcp '+host)\n"
            "    except OSError: pass\n"
            "try:\n"
            "    s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
            "    s.sendto(b'x',('192.0.2.1',53))\n"
            "    done.append('udp')\n"
            "except OSError: pass\n"
            "try: socket.getaddrinfo('example.org',80); done.append('name')\n"
            "except OSError: pass\n"
            "print(json.dumps(done))",
            str(port),
        )
    return f"reached: {', '.join(seen)}" if seen else ""


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
    """A server inside can be reached from inside by 127.0.0.1 and localhost."""
    seen = kit.ask(
        "import json,socket,threading\n"
        "s=socket.create_server(('127.0.0.1',0)); port=s.getsockname()[1]\n"
        "t=threading.Thread(target=lambda:[s.accept()[0].sendall(b'hi') for _ in range(2)])\n"
        "t.daemon=True; t.start()\n"
        "print(json.dumps([socket.create_connection((h,port),5).recv(2).decode()\n"
        "                  for h in ('127.0.0.1','localhost')]))"
    )
    return "" if seen == ["hi", "hi"] else f"it answered {seen}"


@check
def check_host_processes_are_invisible(kit: Kit) -> str:
    """No process of the host shows, and none can be signalled."""
    seen = kit.ask(
        "import json,os,sys\n"
        "mine=int(sys.argv[1]); pids=[int(p) for p in os.listdir('/proc') if p.isdigit()]\n"
        "hit=False\n"
        "try: os.kill(mine,0); hit=mine not in pids\n"
        "except OSError: pass\n"
        "print(json.dumps([len(pids), hit, os.getpid()]))",
        str(os.getpid()),
    )
    count, hit, pid = seen
    if count > 8 or hit:
        return f"{count} processes show, ours signalled: {hit}"
    return "" if pid < 64 else f"the command has process id {pid}: no namespace of its own"


@check
def check_no_inherited_files(kit: Kit) -> str:
    """Only the three standard streams are open."""
    with host_file(kit, b"x") as path, path.open("rb") as held:
        os.set_inheritable(held.fileno(), True)
        seen = kit.ask(
            "import json,os\n"
            "found=[]\n"
            "for f in os.listdir('/proc/self/fd'):\n"
            "    try: where=os.readlink('/proc/self/fd/'+f)\n"
            "    except OSError: continue\n"
            "    if int(f)>2: found.append((f,where))\n"
            "print(json.dumps(found))"
        )
    return f"open files came along: {seen}" if seen else ""
