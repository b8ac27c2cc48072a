"""What is changed around a case: does the program's part of it, and says what took hold.

Standard library only, syntax of Python 3.8. A change that could not be made, or that something in
the trial escapes, is reported; nobody may take it for one that made no difference.
"""

import contextlib
import os
import shutil
import socket
import struct
import sys
import threading
import time

ENVIRONMENT = "/qh/env"
ORIGIN = "/qh/origin"
LIBRARY = "libfaketime"
MANY = 64
SLACK_S = 3600
MOST = 5
CHANGES = {}
STATE = {"patience": 1.0, "clock": False, "known": frozenset(), "twice": set()}
ESCAPED = []


def begin(document, channel):
    """Make the changes that are the program's; return which took hold, and why others did not."""
    CHANGES.clear()
    CHANGES.update(document.get("changes", {}))
    STATE["patience"] = float(document.get("patience", 1.0))
    refused = {}
    for name, value in sorted(CHANGES.items()):
        try:
            reason = _CHECKS[name](value, document)
        except Exception as error:
            reason = "it could not be checked (%s)" % type(error).__name__
        if reason:
            refused[name] = reason
    # Last, so that nothing above competes with it.
    if "load" in CHANGES:
        _load(int(CHANGES["load"]), channel)
    applied = [name for name in CHANGES if name not in refused]
    facts = {"applied": applied, "not_applied": refused}
    if "clock" in applied:
        _watch_clock()
        facts["file_times"] = _file_times()
    return facts


def manners():
    """Return how cases are called."""
    return CHANGES.get("manner", [])


def patience():
    """Return the factor by which a case may take longer."""
    return STATE["patience"]


def called(work):
    """Call ``work`` in the manner that the variation names and return its result.

    Called twice, the second result counts: the first is what the baseline shows.
    """
    how = manners()
    if "daemon" in how:
        _become_daemon()
    call = work
    if "executor" in how:
        call = _in_executor(call)
    if "thread" in how:
        call = _in_thread(call)
    if "many" in how:
        return _many(call)
    if "repeated" in how:
        with contextlib.suppress(Exception):
            call()
    return call()


def escapes():
    """Return what was seen to read another clock than the shifted one."""
    return ESCAPED[:MOST]


def look():
    """Note processes of this world that run without the shifted clock; call it now and then."""
    if not STATE["clock"]:
        return
    seen = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in STATE["known"]:
                continue
            with contextlib.suppress(OSError):
                with open("/proc/%s/maps" % name, encoding="utf-8", errors="replace") as file:
                    maps = file.read()
                if not maps or LIBRARY in maps:
                    continue
                program = os.path.basename(os.readlink("/proc/%s/exe" % name))
                # A program that is just starting has its loader mapped, and the library soon.
                if "/ld-" not in maps or name in STATE["twice"]:
                    escaped("the program %s runs without it" % program)
                seen.add(name)
    STATE["twice"] = seen


def escaped(why):
    """Note one escape."""
    if why not in ESCAPED and len(ESCAPED) < MOST:
        ESCAPED.append(why)


def _clock(_, document):
    ahead = time.time() - document["now"]
    if abs(ahead - document["shift"]) > SLACK_S:
        return "the C library's own time is not shifted"
    if abs(time.clock_gettime(time.CLOCK_REALTIME) - time.time()) > SLACK_S:
        return "time() and clock_gettime() disagree"
    return ""


def _timezone(value, _):
    now = time.localtime()
    utc = time.gmtime(time.mktime(now))
    return "" if now[3:5] != utc[3:5] else "this world does not know the time zone %s" % value


def _locale(value, _):
    import locale

    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "")
    except locale.Error:
        return "this world has no locale %s" % value
    finally:
        locale.setlocale(locale.LC_ALL, before)
    return ""


def _order(_, document):
    """Create the environment's files anew, so that they list in another order."""
    del document
    alone = all(len(files) + len(folders) < 2 for _, folders, files in os.walk(ORIGIN))
    if _copied(lambda names: names[::-1]) or alone or _copied(lambda names: names):
        return ""
    return "this file system lists files in an order of its own"


def _copied(ordered):
    """Fill the environment's folder in some order; return whether it lists in another now."""
    for name in os.listdir(ENVIRONMENT):
        path = os.path.join(ENVIRONMENT, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    differs = False
    folders = [""]
    while folders:
        inner = folders.pop()
        source, target = os.path.join(ORIGIN, inner), os.path.join(ENVIRONMENT, inner)
        listed = os.listdir(source)
        for name in ordered(listed):
            path = os.path.join(source, name)
            if os.path.isdir(path) and not os.path.islink(path):
                os.mkdir(os.path.join(target, name))
                folders.append(os.path.join(inner, name))
            else:
                shutil.copy2(path, os.path.join(target, name), follow_symlinks=False)
        differs = differs or os.listdir(target) != listed
    return differs


def _umask(value, _):
    mask = os.umask(0o077)
    os.umask(mask)
    return "" if mask == value else "the mask is %03o" % mask


def _cpus(value, _):
    if not hasattr(os, "sched_getaffinity"):
        return "this system cannot say which CPUs it may use"
    seen = len(os.sched_getaffinity(0))
    return "" if seen == value else "it may use %d CPUs" % seen


def _variable(name):
    return lambda value, _: "" if os.environ.get(name) == value else "%s is not set" % name


def _network(_, document):
    del document
    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    return "" if names else "the world has no network interface"


_CHECKS = {
    "clock": _clock,
    "timezone": _timezone,
    "locale": _locale,
    "folder": lambda value, _: "" if os.getcwd() == value else "it started elsewhere",
    "home": _variable("HOME"),
    "user": _variable("USER"),
    "hostname": lambda value, _: "" if os.uname()[1] == value else "it has another name",
    "umask": _umask,
    "cpus": _cpus,
    "order": _order,
    "noise": lambda value, _: "" if "UNRELATED_%03d" % (value - 1) in os.environ else "not set",
    "network": _network,
    # What the program itself does.
    "load": lambda *_: "",
    "manner": lambda *_: "",
}


def _load(count, channel):
    """Start busy processes; they end with the world."""
    for _ in range(count):
        if os.fork() == 0:
            os.close(channel)
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            while True:
                pass


def _watch_clock():
    STATE["clock"] = True
    STATE["known"] = frozenset(int(name) for name in os.listdir("/proc") if name.isdigit())
    sys.addaudithook(_hear)


def _hear(event, arguments):
    """Hear of programs that are about to start and of system calls by number."""
    try:
        if event == "ctypes.dlsym" and arguments[1] == "syscall":
            escaped("it makes system calls by number")
        elif event == "subprocess.Popen":
            _program(arguments[0] or arguments[1][0], arguments[3])
        elif event in {"os.exec", "os.posix_spawn"}:
            _program(arguments[0], arguments[2])
    except Exception:
        return  # Foreign code goes on as it would without us.


def _program(path, environment):
    given = os.environ if environment is None else environment
    path = os.fsdecode(path)
    name = os.path.basename(path)
    preload = given.get("LD_PRELOAD") or given.get(b"LD_PRELOAD") or ""
    if LIBRARY not in os.fsdecode(preload):
        escaped("it starts %s without it" % name)
    found = path if "/" in path else shutil.which(path)
    if found and _is_static(found):
        escaped("it starts %s, which is linked statically" % name)


def _is_static(path, depth=0):
    """Whether a program has no loader that could preload a library."""
    with open(path, "rb") as file:
        head = file.read(4096)
    if head[:2] == b"#!" and depth < 3:
        words = os.fsdecode(head[2:].split(b"\n", 1)[0]).split()
        return bool(words) and _is_static(words[0], depth + 1)
    if head[:4] != b"\x7fELF" or head[4] != 2:
        return False
    start = struct.unpack_from("<Q", head, 32)[0]
    size, count = struct.unpack_from("<HH", head, 54)
    kinds = [
        struct.unpack_from("<I", head, start + size * index)[0]
        for index in range(count)
        if start + size * index + 4 <= len(head)
    ]
    return 3 not in kinds


def _become_daemon():
    """Be what ``multiprocessing`` calls a daemon: a process that may have no children."""
    import multiprocessing

    multiprocessing.current_process()._config["daemon"] = True  # noqa: SLF001 - the only way for a process that is already there


def _in_thread(work):
    def call():
        box = []

        def target():
            try:
                box.append((True, work()))
            except BaseException as error:
                box.append((False, error))

        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
        good, value = box[0]
        if good:
            return value
        raise value

    return call


def _in_executor(work):
    def call():
        import asyncio

        async def run():
            return await asyncio.get_running_loop().run_in_executor(None, work)

        return asyncio.run(run())

    return call


def _many(work):
    """Call ``work`` many times at once; return the rarest result, and how many there are."""
    start = threading.Barrier(MANY)
    results = []

    def target():
        start.wait()
        try:
            results.append(work())
        except BaseException as error:
            import common

            results.append(common.crashed(error))

    threads = [threading.Thread(target=target) for _ in range(MANY)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    groups = {}
    for result in results:
        shown = (result.get("outcome"), repr(result.get("reward")), result.get("error"))
        groups.setdefault(shown, []).append(result)
    rarest = min(groups.values(), key=len)[0]
    if len(groups) > 1:
        rarest = dict(rarest, facts=dict(rarest.get("facts", {}), distinct=len(groups)))
    return rarest


def _file_times():
    """Whether the environment's own code looks at file times, which no shifted clock shifts."""
    for folder, _, names in os.walk(ENVIRONMENT):
        for name in names:
            if name.endswith((".py", ".sh")):
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    if b"mtime" in file.read(1 << 20):
                        return True
    return False
