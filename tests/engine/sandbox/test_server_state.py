"""What one trial of a fork server leaves for the next: nothing; and what it can do to it: nothing."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import pytest

from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox.interpreters import default_interpreter
from qualityhub.engine.sandbox.port import MIB, Command, Limits, Mount

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
QUICK = Limits(wall_s=30, memory_bytes=256 * MIB, pids=64)


def command(code, *arguments, **changes):
    changes.setdefault("limits", QUICK)
    return Command(
        argv=(str(default_interpreter().path), "-I", "-S", "-c", code, *arguments),
        env=ENV,
        **changes,
    )


@pytest.fixture
def given(tmp_path):
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    (tmp_path / "file").write_text("before")
    return (Mount("/given", tmp_path, "overlay"), Mount("/mine", None, "scratch"))


class Asked:
    """A server and the commands that it is asked."""

    def __init__(self, bwrap, mounts=()):
        self.mounts = mounts
        self.server = bwrap.serve(command("pass", mounts=mounts))

    def run(self, code, *arguments, **limits):
        changes = {"wall_s": 30, "memory_bytes": 256 * MIB, "pids": 64, **limits}
        return self.server.run(
            command(code, *arguments, mounts=self.mounts, limits=Limits(**changes))
        )

    def ask(self, code, *arguments):
        seen = self.run(code, *arguments)
        assert seen.exit_code == 0, seen
        return json.loads(seen.stdout)


@pytest.fixture
def served(bwrap, given):
    asked = Asked(bwrap, given)
    yield asked
    asked.server.close()


def test_files_written_anywhere_are_gone(served):
    code = (
        "import json,os\n"
        "left=[]; written=[]\n"
        "for d in ('/','/tmp','/etc','/var','/var/tmp','/home','/root','/run','/dev/shm','/given',"
        "'/mine','/opt','/srv','/mnt'):\n"
        "    p=os.path.join(d,'left-behind')\n"
        "    if os.path.lexists(p): left.append(p)\n"
        "    try: open(p,'w').write('x'); written.append(p)\n"
        "    except OSError: pass\n"
        "before=open('/given/file').read(); open('/given/file','w').write('after')\n"
        "print(json.dumps([left,len(written),before]))"
    )
    for _ in range(2):
        left, written, before = served.ask(code)
        assert left == []
        assert written == 14
        assert before == "before"


def test_the_process_starts_anew(served):
    code = (
        "import builtins,json,os,resource,signal,sys\n"
        "seen=[os.environ.get('LEFT'), os.getcwd(), os.umask(0o077), getattr(builtins,'left',None),"
        "'left' in sys.modules, json.__dict__.get('left'), signal.getsignal(15)==signal.SIG_DFL,"
        "os.nice(0), resource.getrlimit(resource.RLIMIT_FSIZE)[0], os.getpid(), sys.argv[1:]]\n"
        "os.environ['LEFT']='1'; os.chdir('/tmp'); builtins.left=1; sys.modules['left']=json\n"
        "signal.signal(15,signal.SIG_IGN); os.nice(5); json.left=1\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE,(1<<20,1<<20))\n"
        "print(json.dumps(seen))"
    )
    first, second = served.ask(code, "one"), served.ask(code, "two")
    assert first[:-1] == second[:-1]
    assert first[:4] == [None, "/", 0o022, None]
    assert (first[-1], second[-1]) == (["one"], ["two"])


def test_shared_memory_and_queues_are_gone(served):
    code = (
        "import ctypes,json\n"
        "libc=ctypes.CDLL(None,use_errno=True)\n"
        "old=[libc.shmget(77,4096,0)>=0, libc.semget(77,1,0)>=0, libc.msgget(77,0)>=0]\n"
        "new=[libc.shmget(77,4096,0o1600)>=0, libc.semget(77,1,0o1600)>=0, "
        "libc.msgget(77,0o1600)>=0]\n"
        "print(json.dumps([old,new]))"
    )
    for _ in range(2):
        assert served.ask(code) == [[False] * 3, [True] * 3]


def test_a_fixed_port_is_free_again(served):
    code = (
        "import json,socket\n"
        "dev=[l.split()[1] for l in open('/proc/net/dev') if l.strip().startswith('lo')]\n"
        "s=socket.socket(); s.bind(('127.0.0.1',80)); s.listen()\n"
        "u=socket.socket(socket.AF_UNIX); u.bind('\\0fixed'); u.listen()\n"
        "c=socket.create_connection(('127.0.0.1',80)); a,_=s.accept(); a.close(); c.recv(1)\n"
        "print(json.dumps(dev))"
    )
    # Closing first leaves a TIME_WAIT behind, which would refuse the second one.
    for _ in range(2):
        assert served.ask(code) == ["0"]


def test_background_processes_end_with_their_trial(served):
    start = (
        "import os,time\n"
        "for _ in range(5):\n"
        "    if os.fork()==0:\n"
        "        os.setsid()\n"
        "        if os.fork()==0:\n"
        "            import signal,socket\n"
        "            signal.signal(15,signal.SIG_IGN)\n"
        "            time.sleep(600)\n"
        "        os._exit(0)\n"
        "time.sleep(0.2)\n"
    )
    assert served.run(start).exit_code == 0
    shown = served.ask(
        "import json,os; print(json.dumps([p for p in os.listdir('/proc') if p.isdigit()]))"
    )
    assert shown == ["1", "2"]


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("import os; os.abort()", lambda seen: seen.signal == 6),
        ("import time\nwhile True: time.sleep(1)", lambda seen: seen.timed_out),
        ("a=[]\nwhile True: a.append(bytearray(8<<20))", lambda seen: seen.exit_code != 0),
        (
            "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
            lambda seen: seen.timed_out,
        ),
        ("import os\nos.write(1,b'x'*(64<<20))", lambda seen: seen.dropped_bytes > 60 << 20),
        (
            "import os,time\nif os.fork()==0: os.kill(-1,9)\ntime.sleep(20)",
            lambda seen: seen.signal == 9,
        ),
        ("raise SystemExit(7)", lambda seen: seen.exit_code == 7),
        ("1/0", lambda seen: b"ZeroDivisionError" in seen.stderr and seen.exit_code == 1),
    ],
    ids=["abort", "hang", "memory", "forks", "flood", "kill all", "exit", "raise"],
)
def test_how_one_trial_ends_is_nothing_to_others(bwrap, served, code, ended):
    neighbour = Asked(bwrap, served.mounts)
    problems = []

    def beside():
        for _ in range(5):
            seen = neighbour.run("print('fine')")
            if seen.stdout != b"fine\n":
                problems.append(seen)
            time.sleep(0.05)

    thread = threading.Thread(target=beside)
    thread.start()
    seen = served.run(code, wall_s=3)
    thread.join()
    neighbour.server.close()
    assert ended(seen), seen
    assert problems == []
    assert served.run("print('next')").stdout == b"next\n"


def test_a_trial_cannot_reach_what_made_its_world(served):
    code = (
        "import ctypes,json,os,platform\n"
        "libc=ctypes.CDLL(None,use_errno=True); libc.syscall.restype=ctypes.c_long\n"
        "done=[]\n"
        "def tried(name,fn):\n"
        "    try:\n"
        "        if fn() is not False: done.append(name)\n"
        "    except OSError: pass\n"
        "os.kill(1,9)\n"
        "tried('trace init',lambda: libc.ptrace(16,1,0,0)==0)\n"
        "for kind in ('mem','maps','environ','fd/3','fd/0','auxv'):\n"
        "    tried('/proc/1/'+kind,lambda: os.open('/proc/1/'+kind,os.O_RDWR if kind=='mem'"
        " else os.O_RDONLY))\n"
        "tried('map ids',lambda: os.write(os.open('/proc/1/uid_map',os.O_WRONLY),b'0 0 1'))\n"
        "os.closerange(3,64)\n"
        "tried('root of init',lambda: os.listdir('/proc/1/root'))\n"
        "tried('hidden',lambda: os.listdir('/.qh'))\n"
        "tried('umount',lambda: libc.umount2(b'/proc',2)==0)\n"
        "tried('umount root',lambda: libc.umount2(b'/',2)==0)\n"
        "tried('mount',lambda: libc.mount(b'none',b'/tmp',b'tmpfs',0,None)==0)\n"
        "tried('remount',lambda: libc.mount(None,b'/usr',None,32|4096,None)==0)\n"
        "for flag in (0x10000000,0x20000,0x20000000,0x40000000):\n"
        "    tried('unshare %x'%flag,lambda: libc.unshare(flag)==0)\n"
        "for kind in ('user','mnt','pid','net'):\n"
        "    tried('setns '+kind,lambda: libc.setns(os.open('/proc/1/ns/'+kind,0),0)==0)\n"
        "tried('host name',lambda: libc.sethostname(b'x',1)==0)\n"
        "tried('write usr',lambda: open('/usr/left-behind','w'))\n"
        "tried('loopback down',lambda: os.system('ip link set lo down 2>/dev/null')==0)\n"
        "for f in range(3,1024):\n"
        "    tried('file %d'%f,lambda: os.fstat(f))\n"
        "alive=os.path.exists('/proc/1')\n"
        "print(json.dumps([done,alive]))"
    )
    assert served.ask(code) == [[], True]
    assert served.run("print('next')").stdout == b"next\n"


def test_a_lost_server_is_our_error_and_no_result(served, bwrap):
    assert served.run("print(1)").stdout == b"1\n"
    ended = threading.Timer(0.5, served.server.close)
    ended.start()
    with pytest.raises(MachineryError):
        served.run("import time; time.sleep(20)")
    ended.join()
    assert bwrap.run(command("print(2)")).stdout == b"2\n"


def test_generators_that_an_import_seeded_are_seeded_again(bwrap):
    first = command("import random; print(random.random())")
    server = bwrap.serve(first, ("random",))
    try:
        drawn = {server.run(first).stdout for _ in range(3)}
    finally:
        server.close()
    assert len(drawn) == 3


@pytest.fixture
def modules(tmp_path):
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    for name, text in {
        "plain": "import os\nSEEN = os.urandom(4).hex()\n",
        "keeps": "KEPT = open('/etc/passwd')\n",
        "shares": "import mmap\nKEPT = mmap.mmap(-1, 4096)\n",
        "starts": "import subprocess\nKEPT = subprocess.Popen(['sleep', '60'])\n",
        "threads": (
            "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        ),
        "fails": "raise RuntimeError('no')\n",
        "leaves": "raise SystemExit(0)\n",
        "seeds": "import random\nrandom.seed(5)\n",
        "mixes": "import random\nrandom.seed()\n",
        "draws": "import random\nDRAWN = random.random()\n",
        "sets": "import random\nrandom.setstate(random.Random(5).getstate())\n",
        "hides": "import random, sys\nrandom.seed(5)\nrandom.getstate = lambda: ()\n",
        "replaces": "import random, sys\nsys.modules['random'] = random.Random(5)\n",
        "seeds_numpy": "import numpy.random\nnumpy.random.seed(5)\n",
        "puts_back": (
            "import random\nkept = random.getstate()\nrandom.seed(5)\nrandom.random()\n"
            "random.setstate(kept)\n"
        ),
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "numpy" / "random").mkdir(parents=True)
    (tmp_path / "numpy" / "__init__.py").write_text("")
    (tmp_path / "numpy" / "random" / "__init__.py").write_text(
        "import random\n"
        "own = random.Random()\n"
        "seed = own.seed\n"
        "class Array(tuple):\n"
        "    tobytes = tuple.__repr__\n"
        "    def __eq__(self, other):\n"
        "        raise ValueError('the truth of an array is ambiguous')\n"
        "def get_state():\n"
        "    return ('MT19937', Array(own.getstate()[1]))\n"
    )
    (tmp_path / "main.py").write_text("import plain; print(plain.SEEN)\n")
    return tmp_path


def program(folder, target="/qh/programs"):
    python = str(default_interpreter().path)
    return Command(
        argv=(python, "-B", f"{target}/main.py"),
        env=ENV,
        mounts=(Mount(target, folder),),
        limits=QUICK,
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("keeps", "keeps files open"),
        ("shares", "shares memory"),
        ("starts", "started processes"),
        ("threads", "started threads"),
        ("fails", "RuntimeError: no"),
        ("leaves", "SystemExit"),
        ("missing", "not part of the layer"),
        ("seeds", "generator of random"),
        ("mixes", "generator of random"),
        ("draws", "generator of random"),
        ("sets", "generator of random"),
        ("hides", "generator of random"),
        ("replaces", "generator of random"),
        ("seeds_numpy", "generator of numpy.random"),
    ],
)
def test_an_import_that_forks_would_share_is_refused(bwrap, modules, name, why):
    with pytest.raises(MachineryError) as seen:
        bwrap.serve(program(modules), (name,))
    assert why in seen.value.message


@pytest.mark.parametrize("preload", ["random", "puts_back", "numpy.random"])
def test_chance_that_no_import_took_away_stays_in_every_trial(bwrap, modules, preload):
    (modules / "main.py").write_text(
        "if __name__ == '__main__':\n"
        "    import random\n"
        "    import numpy.random\n"
        "    print(random.random(), numpy.random.own.random())\n"
    )
    server = bwrap.serve(program(modules), (preload,))
    try:
        drawn = [server.run(program(modules)).stdout.split() for _ in range(3)]
    finally:
        server.close()
    assert [len(set(each)) for each in zip(*drawn, strict=True)] == [3, 3]


def test_what_no_import_loaded_looks_unloaded_to_a_trial(bwrap, modules):
    python = (str(default_interpreter().path), "-I", "-S", "-B", "/qh/programs/main.py")
    asked = replace(program(modules), argv=python)
    (modules / "main.py").write_text(
        "if __name__ == '__main__':\n"
        "    import sys\n"
        "    print(sorted({'random', 'hashlib', 'bisect', 'numpy'} & set(sys.modules)))\n"
        "    print([getattr(finder, '__name__', '?') for finder in sys.meta_path])\n"
        "    import random\n"
        "    print(sorted(vars(random.__loader__)))\n"
    )
    cold = bwrap.run(asked)
    assert cold.stdout.startswith(b"[]\n")
    for preload in ("plain", "random"):
        server = bwrap.serve(asked, (preload,))
        try:
            seen = server.run(asked).stdout
        finally:
            server.close()
        skipped = 1 if preload == "random" else 0
        assert seen.splitlines()[skipped:] == cold.stdout.splitlines()[skipped:]


def test_nothing_is_imported_from_where_the_environment_lies(bwrap, modules):
    with pytest.raises(MachineryError) as seen:
        bwrap.serve(program(modules, "/qh/env"), ("plain",))
    assert "not part of the layer" in seen.value.message


def test_what_an_import_drew_is_one_server_s_alone(bwrap, modules):
    drawn = []
    for _ in range(2):
        server = bwrap.serve(program(modules), ("plain",))
        drawn.append([server.run(program(modules)).stdout for _ in range(2)])
        server.close()
    assert drawn[0][0] == drawn[0][1]
    assert drawn[0] != drawn[1]


def test_a_server_runs_no_command_of_another_world(served, bwrap):
    with pytest.raises(MachineryError):
        served.server.run(command("pass"))


@pytest.mark.parametrize(
    "changes",
    [
        {"network": True},
        {"mounts": (Mount("/usr/share/inner", None, "scratch"),)},
        {"argv": ("/bin/sh", "-c", "true")},
        {"argv": (str(default_interpreter().path), "-m", "json")},
    ],
    ids=["network", "inner mount", "shell", "module"],
)
def test_other_worlds_are_not_served(bwrap, changes):
    changes = {"argv": (str(default_interpreter().path), "-c", "pass"), **changes}
    with pytest.raises(MachineryError):
        bwrap.serve(Command(env=ENV, limits=QUICK, **changes))
