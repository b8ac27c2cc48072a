"""The first program of a served world: imports once, then forks one fresh world per trial.

Standard library only, syntax of Python 3.8. It runs below bubblewrap with every capability
dropped, under a filter of its own, with the interpreter, variables and flags that the trial's own
program would be started with. Each trial is a clone in new user, process, mount, network and IPC
namespaces. The keeper, outside, writes the clone's id maps, limits it and sees it dead; here it
builds its root on a fresh tmpfs, gives up what it got, and becomes a small init whose only child
turns into the trial's program as if it had just been started.

It serves, and it builds worlds; both are one file because a second one would have to be imported
from a place that the trial's program sees, under a name that it could meet.
"""

import sys

THEIRS = frozenset(sys.modules)

import _signal  # noqa: E402 - what was loaded before us must be known first
import array  # noqa: E402
import ctypes  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import types  # noqa: E402

HIDDEN = "/.qh"
TOP = HIDDEN + "/t"
ROOT = TOP + "/r"
MESSAGE = 1 << 18
# The tmpfs's own folders are not what the trial wrote.
OWN_INODES = 64
# The init and the moment between its fork and the program's.
OWN_PIDS = 3
REHEARSALS = 20

NEW_WORLD = 0x00020000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
"""CLONE_NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
NEW_CGROUP = 0x02000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20, 0x1000, 0x4000, 1 << 18
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 22, 24, 38
CALLS = {
    "x86_64": {"clone": 56, "pivot_root": 155, "capset": 126},
    "aarch64": {"clone": 220, "pivot_root": 41, "capset": 91},
}[os.uname().machine]
CLOSE_RANGE = 436
AF_INET, SOCK_DGRAM, SIOCSIFFLAGS = 2, 2, 0x8914
LOOPBACK_UP = b"lo".ljust(16, b"\0") + b"\x01\0".ljust(24, b"\0")

# The lock stays with us across a call: a clone must come back in both processes holding it.
LIBC = ctypes.PyDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long


def call(name, *arguments):
    """Make a system call by name or number; text is a path, numbers fill a register."""
    number = CALLS.get(name, name)
    given = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    return checked(LIBC.syscall(ctypes.c_long(number), *given), str(name))


def checked(result, what):
    """Return a result, or raise what the C library says about it."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (what, os.strerror(number)))
    return result


def mount(*arguments):
    """Mount a file system, or bind a folder, as :func:`mounting` packed it."""
    checked(LIBC.mount(*arguments), arguments[1].decode("utf-8", "replace"))


def mounting(source, target, kind, flags, options=""):
    """Return one step of a plan: the arguments of the C library's ``mount``, packed."""
    packed = os.fsencode(source), os.fsencode(target), kind.encode()
    return mount, (*packed, ctypes.c_ulong(flags), os.fsencode(options))


def clone():
    """Fork into new namespaces; return as ``os.fork`` does."""
    api = ctypes.pythonapi
    api.PyOS_BeforeFork()
    pid = LIBC.syscall(
        ctypes.c_long(CALLS["clone"]),
        ctypes.c_long(NEW_WORLD | signal.SIGCHLD),
        ctypes.c_long(0),
        ctypes.c_long(0),
        ctypes.c_long(0),
        ctypes.c_long(0),
    )
    number = ctypes.get_errno()
    if pid == 0:
        api.PyOS_AfterFork_Child()
    else:
        api.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(number, "clone: %s" % os.strerror(number))
    return pid


class NotSharedError(Exception):
    """What was imported cannot be shared by forks."""


class Program:
    """What a trial's own process goes on to run, at the top of this file."""

    def __init__(self, code, path, arguments):
        self.code = code
        self.path = path
        self.arguments = arguments


def receive(link):
    """Return the next message and the files that came along."""
    files = array.array("i")
    message, extra, _, _ = link.recvmsg(MESSAGE, socket.CMSG_SPACE(16 * files.itemsize))
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    return message, list(files)


def serve(link):
    """Answer trials for ever; return a :class:`Program` in each trial's own process alone."""
    config = json.loads(receive(link)[0].decode("ascii"))
    LIBC.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    sys.path[:] = [path for path in sys.path if path != HIDDEN]
    for name in set(sys.modules) - THEIRS:
        # What we need must not look imported to what comes after us.
        del sys.modules[name]
    code = None
    try:
        if config["program"]:
            sys.path.insert(0, os.path.dirname(config["program"]))
            with open(config["program"], "rb") as file:
                code = compile(file.read(), config["program"], "exec")
        standard = os.path.dirname(os.__file__)
        load(config["preload"], [*config["allowed"], standard])
        refuse_what_is_shared(link.fileno())
    except BaseException as error:
        link.send(json.dumps({"error": "%s: %s" % (type(error).__name__, error)}).encode())
        os._exit(1)
    null = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2):
        os.dup2(null, file)
    os.close(null)
    config["plan"] = plan(config)
    config["drop"] = dropping(config["capabilities"], bytes.fromhex(config["filter"]))
    config["threads"] = threads() > 1
    rehearse(code if config["ours"] else None)
    gc.collect()
    gc.freeze()
    link.send(b'{"ready": true}')
    while True:
        message, files = receive(link)
        if not message:
            os._exit(0)
        request = json.loads(message.decode("ascii"))
        program = Program(code, config["program"], request["argv"])
        if request["code"] is not None:
            program = Program(request["code"], "-c", request["argv"])
        if start(link, files, config, request):
            return program


def load(names, allowed):
    """Import modules by name, each only from where the caller allows.

    Raises:
        NotSharedError: One of them lies elsewhere.
    """
    import importlib
    import importlib.util

    chance = Chance(allowed)
    sys.meta_path.insert(0, chance)
    try:
        for name in names:
            spec = importlib.util.find_spec(name.partition(".")[0])
            origin = spec.origin if spec is not None else None
            if spec is None or not (
                origin in ("built-in", "frozen") or within(origin or "", allowed)
            ):
                raise NotSharedError("%s is not part of the layer" % name)
            importlib.import_module(name)
    finally:
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not chance]
    chance.refuse_what_was_set()


def within(path, folders):
    """Whether a path lies in one of the folders."""
    return any(path.startswith(folder + "/") for folder in folders)


class Chance:
    """Notes the state that generators start with; first of the finders while modules are loaded.

    Nothing is imported for it: what no module imports must not look imported to a trial.
    """

    READERS = (("random", "getstate"), ("numpy.random", "get_state"))

    def __init__(self, allowed):
        self.started = {}
        customs = [sys.modules.get(name) for name in ("sitecustomize", "usercustomize")]
        files = [getattr(module, "__file__", None) or "" for module in customs]
        if not any(within(file, allowed) for file in files):
            # What the interpreter's own start loaded was set by nothing foreign.
            for name, reader in self.READERS:
                if name in sys.modules:
                    self.note(name, sys.modules[name], reader)

    def note(self, name, module, reader):
        """Note the state that a module starts with."""
        read = getattr(module, reader)
        self.started[name] = (module, read, comparable(read()))

    def find_spec(self, name, path=None, target=None):
        """Find a module as the other finders do, and look at a generator once it is loaded."""
        reader = dict(self.READERS).get(name)
        for finder in sys.meta_path if reader else ():
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                self.look_after(spec.loader, name, reader)
                return spec
        return None

    def look_after(self, loader, name, reader):
        """Have a loader note the state that its module starts with."""

        def exec_module(module):
            del loader.exec_module
            loader.exec_module(module)
            self.note(name, module, reader)

        loader.exec_module = exec_module

    def refuse_what_was_set(self):
        """Refuse generators that are not as they started: each trial could not get its own state.

        A state that an import set may be meant to be the same every time, or drawn by the import
        itself; which of both is not to be told from here.

        Raises:
            NotSharedError: A generator was set or drawn from, or its start was not seen.
        """
        for name, _ in self.READERS:
            if name in sys.modules:
                module, read, state = self.started.get(name, (None, None, None))
                if module is not sys.modules[name] or comparable(read()) != state:
                    raise NotSharedError("what was imported uses the generator of %s" % name)


def comparable(state):
    """Return the state of a generator in a form that ``==`` compares; arrays become bytes."""
    return [item.tobytes() if hasattr(item, "tobytes") else item for item in state]


def refuse_what_is_shared(link):
    """Refuse imports whose traces every fork would share with the next one.

    Raises:
        NotSharedError: Open files, writable shared memory, children, threads that a fork loses.
    """
    opened = [int(name) for name in os.listdir("/proc/self/fd")]
    if any(file > 2 and file != link and is_open(file) for file in opened):
        raise NotSharedError("what was imported keeps files open")
    with open("/proc/self/maps", "rb") as file:
        maps = file.read().splitlines()
    if any(b" rw-s " in line for line in maps):
        raise NotSharedError("what was imported shares memory")
    with open("/proc/self/task/%d/children" % os.getpid(), "rb") as file:
        if file.read().strip():
            raise NotSharedError("what was imported started processes")
    if "threading" in sys.modules and sys.modules["threading"].active_count() > 1:
        raise NotSharedError("what was imported started threads")
    # These end their threads before a fork and start them again after it.
    libraries = {line.split()[-1] for line in maps if b"openblas" in line}
    most = 1 + len(libraries) * (len(os.sched_getaffinity(0)) - 1)
    if threads() > most:
        raise NotSharedError("what was imported started threads of its own")


def is_open(file):
    """Whether a file is open; the listing itself had one."""
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


def threads():
    """Return how many threads this process has."""
    return len(os.listdir("/proc/self/task"))


def start(link, files, config, request):
    """Run one trial and report its end; return True in the trial's own process."""
    between = 0
    if config["threads"]:
        # The C library's own fork lets libraries put their threads away; a bare clone does not.
        between = os.fork()
    if between == 0:
        pid = clone()
        if pid == 0:
            return become_world(link, files, config, request)
    for file in files:
        os.close(file)
    _, status, used = os.wait4(between or pid, 0)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    if between == 0 and os.getpid() != PID:
        os._exit(code)
    answer = {"code": code, "cpu_s": used.ru_utime + used.ru_stime, "peak_kib": used.ru_maxrss}
    link.send(json.dumps(answer).encode())
    return False


def become_world(link, files, config, request):
    """Build the world; return True in the process that goes on as the trial's program.

    That is this one where the program shall be the first of its world, else its only child.
    """
    stdin, stdout, stderr, gate = files
    link.close()
    # The first process of a namespace ignores what it has no handler for.
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    try:
        os.write(gate, b"m")
        if os.read(gate, 1) != b"y":
            os._exit(1)
        places = build(config, request)
        limit(config, request["limits"])
        drop(config["drop"])
        if places:
            door = socket.socket(fileno=os.dup(gate))
            rights = array.array("i", places)
            door.sendmsg([b"u"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            door.detach()
        else:
            os.write(gate, b"u")
        for target, source in enumerate((stdin, stdout, stderr)):
            os.dup2(source, target)
        close_from(3)
    except BaseException as error:
        text = "%s: %s" % (type(error).__name__, error)
        try:
            os.write(gate, b"e" + text.encode("utf-8", "replace")[:2000])
        finally:
            os._exit(1)
    if config["first"]:
        return True
    child = os.fork()
    if child == 0:
        return True
    null = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2):
        os.dup2(null, file)
    while True:
        done, status = os.wait()
        if done == child:
            os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def plan(config):
    """Return the steps that make a trial's root, worked out once: every trial takes the same."""
    steps = [mounting(ROOT, ROOT, "", MS_BIND)]
    folder = folders(steps)
    for path, mode in config["folders"]:
        folder(path, mode)
    for name, target in config["links"]:
        steps.append((os.symlink, (target, ROOT + name)))
    for number, item in enumerate(config["mounts"]):
        if item["is_folder"]:
            folder(item["target"])
        else:
            folder(item["target"].rpartition("/")[0])
            steps.append((touch, (ROOT + item["target"],)))
        steps += placing(number, item)
    folder(config["cwd"].rstrip("/"))
    return steps + surroundings()


def folders(steps):
    """Return a function that adds the steps of making a folder, with those it lies in, once."""
    made = {"", "/"}

    def folder(path, mode=0o755):
        parent = path.rpartition("/")[0]
        if parent not in made:
            folder(parent)
        if path not in made:
            made.add(path)
            steps.append((os.mkdir, (ROOT + path, mode)))
        elif mode != 0o755:
            steps.append((os.chmod, (ROOT + path, mode)))

    return folder


def surroundings():
    """Return the steps that lend the device files and show the trial its own processes."""
    steps = []
    steps.append(mounting("/dev", ROOT + "/dev", "", MS_BIND | MS_REC))
    options = "newinstance,ptmxmode=0666,mode=620"
    flags = MS_NOSUID | MS_NOEXEC
    steps.append(mounting("devpts", ROOT + "/dev/pts", "devpts", flags, options))
    steps.append((os.mkdir, (TOP + "/shm", 0o1777)))
    steps.append(mounting(TOP + "/shm", ROOT + "/dev/shm", "", MS_BIND))
    flags |= MS_NODEV
    steps.append(mounting("proc", ROOT + "/proc", "proc", flags))
    for name in ("sys", "sysrq-trigger", "irq", "bus"):
        # What the trial's root could write of the kernel is read-only.
        if os.path.lexists("/proc/" + name):
            path = ROOT + "/proc/" + name
            steps.append(mounting(path, path, "", MS_BIND))
            steps.append(mounting("none", path, "", MS_BIND | MS_REMOUNT | MS_RDONLY | flags))
    return steps


def placing(number, item):
    """Return the steps of one mount of the world."""
    target = ROOT + item["target"]
    if item["mode"] == "ro":
        return [mounting(item["source"], target, "", MS_BIND | MS_REC)]
    upper = "%s/%d" % (TOP, number)
    if item["mode"] == "scratch":
        return [
            (os.mkdir, (upper, item["permissions"])),
            mounting(upper, target, "", MS_BIND),
        ]
    options = "lowerdir=%s,upperdir=%s,workdir=%sw,userxattr" % (item["source"], upper, upper)
    return [
        (os.mkdir, (upper, os.stat(item["source"]).st_mode & 0o7777)),
        (os.mkdir, (upper + "w", 0o755)),
        mounting("overlay", target, "overlay", MS_NOSUID | MS_NODEV, options),
    ]


def touch(path):
    """Make an empty file."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))


def build(config, request):
    """Make the root that the trial sees and enter it; return its writable places where asked."""
    LIBC.unshare(NEW_CGROUP)
    os.umask(0)
    loopback()
    limits = request["limits"]
    size = "size=%d,nr_inodes=%d,mode=755" % (limits["disk_bytes"], limits["files"] + OWN_INODES)
    LIBC.mount(b"none", b"/", b"", ctypes.c_ulong(MS_REC | MS_PRIVATE), b"")
    mount(b"tmpfs", TOP.encode(), b"tmpfs", ctypes.c_ulong(MS_NOSUID | MS_NODEV), size.encode())
    os.mkdir(ROOT, 0o755)
    for step, arguments in config["plan"]:
        step(*arguments)
    os.chdir(ROOT)
    call("pivot_root", b".", b".")
    checked(LIBC.umount2(b".", 2), "umount")
    os.chdir(config["cwd"])
    os.umask(config["umask"])
    if not request["collect"]:
        return []
    writable = [item["target"] for item in config["mounts"] if item["mode"] != "ro"]
    return [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in ["/", *writable]]


def loopback():
    """Bring up the only network device."""
    handle = checked(LIBC.socket(AF_INET, SOCK_DGRAM, 0), "socket")
    checked(LIBC.ioctl(handle, SIOCSIFFLAGS, LOOPBACK_UP), "ioctl")
    os.close(handle)


def limit(config, limits):
    """Lower what no control group limits; what is already lower stays."""
    wanted = [
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, limits["cpu_s"], limits["cpu_s"] + 1),
        (resource.RLIMIT_NOFILE, limits["open_files"], limits["open_files"]),
    ]
    if "pids" not in config["by_kernel"]:
        most = limits["pids"] + OWN_PIDS
        wanted.append((resource.RLIMIT_NPROC, most, most))
    if "memory" not in config["by_kernel"]:
        wanted.append((resource.RLIMIT_DATA, limits["memory_bytes"], limits["memory_bytes"]))
    for kind, soft, hard in wanted:
        most = resource.getrlimit(kind)[1]
        allowed = hard if most == resource.RLIM_INFINITY else min(hard, most)
        resource.setrlimit(kind, (min(soft, allowed), allowed))


class Filter(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = [("length", ctypes.c_ushort), ("lines", ctypes.c_char_p)]


def dropping(kept, rules):
    """Return what :func:`drop` needs, worked out once."""
    with open("/proc/sys/kernel/cap_last_cap", "rb") as file:
        last = int(file.read())
    low = sum(1 << item for item in kept if item < 32)
    high = sum(1 << (item - 32) for item in kept if item >= 32)
    return {
        "bounding": [item for item in range(last + 1) if item not in kept],
        "head": array.array("I", [0x20080522, 0]).tobytes(),
        "sets": array.array("I", [low, low, low, high, high, high]).tobytes(),
        "filter": Filter(len(rules) // 8, rules),
    }


def drop(given):
    """Keep only some capabilities, for good, and load the trial's filter."""
    prctl = LIBC.prctl
    for item in given["bounding"]:
        if prctl(PR_CAPBSET_DROP, item, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "the bounding set cannot be lowered")
    call("capset", given["head"], given["sets"])
    checked(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    checked(prctl(PR_SET_SECCOMP, 2, ctypes.byref(given["filter"]), 0, 0), "seccomp")


def close_from(first):
    """Close every file from a number on."""
    if LIBC.syscall(*[ctypes.c_long(item) for item in (CLOSE_RANGE, first, 0x7FFFFFFF, 0)]) != 0:
        os.closerange(first, 1 << 16)


def rehearse(code):
    """Do what a program does a few times; a program of ours brings a function for that.

    The interpreter writes into code while that is new to it, and a page that is written costs each
    trial a copy.
    """
    document = sys.modules.get("json", json)
    names = {"__name__": "rehearsal"}
    if code is not None:
        exec(code, names)
    for _ in range(REHEARSALS):
        document.loads(document.dumps({"a": [1, 2.5, None, True], "b": {"c": "d"}}))
        if "rehearse" in names:
            names["rehearse"]()


def refresh():
    """Give generators a state of this process's own; :class:`Chance` saw that none was set."""
    for name in ("random", "numpy.random"):
        module = sys.modules.get(name)
        if module is not None:
            module.seed()


def run(program):
    """Be the program, as the interpreter would run it from the start; never returns."""
    os.setsid()
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    # What made the world stays shut to what runs in it; the program is a process like any other.
    LIBC.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    refresh()
    module = types.ModuleType("__main__")
    module.__builtins__ = __builtins__
    if program.path != "-c":
        module.__file__ = program.path
        module.__cached__ = None
    elif not getattr(sys.flags, "safe_path", sys.flags.isolated) and not sys.flags.isolated:
        sys.path.insert(0, "")
    sys.modules["__main__"] = module
    sys.argv[:] = [program.path, *program.arguments]
    return module.__dict__


def leave(code):
    """End as the interpreter does, but for taking every object apart; never returns."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            code = 120
    os._exit(code)


def status_of(ended):
    """Return the exit status of a ``SystemExit``."""
    if ended.code is None:
        return 0
    if isinstance(ended.code, int):
        return ended.code & 0xFF
    sys.stderr.write("%s\n" % (ended.code,))
    return 1


if __name__ == "__main__":
    PID = os.getpid()
    PROGRAM = serve(socket.socket(fileno=int(sys.argv[1])))
    NAMES = run(PROGRAM)
    try:
        exec(PROGRAM.code, NAMES)
    except SystemExit as ended:
        leave(status_of(ended))
    except BaseException:
        KIND, ERROR, TRACE = sys.exc_info()
        sys.excepthook(KIND, ERROR, TRACE.tb_next)
        if KIND is KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        leave(1)
    leave(0)
