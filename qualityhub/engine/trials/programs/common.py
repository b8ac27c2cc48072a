"""Shared by the in-sandbox programs. Standard library only, syntax of Python 3.8.

A program reads one JSON document from stdin and answers with one line per case on the private
copy of stdout: the nonce it was given, a space, a JSON object. Whatever foreign code prints goes
to stderr. Each case runs in a forked child, so that a crash, an exit or a hang is that case's
result alone. Of what a child says, only rewards and what explains them is taken over: when time ran
out, what ended it, what was left out and whether we failed is for this process to say.
"""

import contextlib
import ctypes
import gc
import importlib.util
import json
import math
import os
import select
import signal
import sys
import time
import traceback

import around
import claims

DETAIL = 2000
MOST_BYTES = 1024 * 1024
FLOOD = "flood"
HANG = "hang"
ANSWER = []
PR_SET_DUMPABLE = 4


def start():
    """Return the payload and a function that writes one answer line."""
    # Cases are our children with our user: without this they could write our memory and our files.
    shut(True)
    payload = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    channel = os.dup(1)
    os.dup2(2, 1)
    nonce = payload["nonce"].encode()

    def answer(document):
        line = nonce + b" " + json.dumps(document).encode() + b"\n"
        while line:
            line = line[os.write(channel, line) :]

    # Foreign code is handed neither the nonce nor the channel by name; the child closes both.
    payload.pop("nonce")
    ANSWER.append(answer)
    changed = around.begin(payload.pop("variation", {}), channel)
    # From here on an exit status may be the environment's own and says nothing of us.
    answer(dict(changed, started=True))
    return payload, answer, channel


def shut(wanted):
    """Keep other processes of this user out of this one's memory and files, or let them in again.

    Where the system has no such call, nothing changes.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0 if wanted else 1, 0, 0, 0)


def run(main):
    """Run a program's main; an exception of our own is an answer, and status 71."""
    try:
        main()
    except Exception:
        text = traceback.format_exc()
        sys.stderr.write(text)
        sys.stderr.flush()
        if ANSWER:
            ANSWER[0]({"machinery": text[-DETAIL:]})
        os._exit(71)


def foreign(answer):
    """Say that foreign code comes into this very process: from here on it may write as we do.

    What fails later is then nobody's word against the environment's.
    """
    answer({"foreign": True})


def run_case(index, work, timeout_s, answer, channel, outcomes=claims.SCORED):  # noqa: PLR0917 - as its callers have them
    """Run ``work()`` in a child, answer with what it returned or how it ended, return the outcome.

    ``work`` returns a dict with at least ``outcome``, which must be one of ``outcomes``.
    """
    # A collection in the child would copy every page of what the parent imported.
    gc.freeze()
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            shut(False)
            os.setsid()
            os.close(read_end)
            os.close(channel)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            data = json.dumps(_result(work)).encode()
            while data:
                data = data[os.write(write_end, data) :]
        except BaseException:
            code = 70
        finally:
            os._exit(code)
    os.close(write_end)
    timeout_s *= around.patience()
    data, cut = _read(read_end, pid, time.monotonic() + timeout_s)
    os.close(read_end)
    if cut:
        _kill(pid)
    _, status = os.waitpid(pid, 0)
    _kill(pid)
    _bury()
    result = _cut(cut, timeout_s) if cut else _decode(data, status, outcomes)
    return _answered(index, result, answer)


def run_together(cases, work, timeout_s, answer, channel, outcomes):  # noqa: PLR0917 - as its callers have them
    """Run ``work(index)`` of the cases in one process, the last first, and answer each.

    A case that ends the process, or hangs, has that as its own result; those that are left go on in
    another process. ``outcomes(index)`` are those that a case may have by its own word.
    """
    timeout_s *= around.patience()
    left = list(cases)[::-1]
    while left:
        pid, read_end = _start_together(left, work, channel)
        buffer = b""
        status = cut = None
        while left and status is None and not cut:
            line, buffer, cut = _line(read_end, pid, buffer, time.monotonic() + timeout_s)
            if line is not None:
                index = left.pop(0)
                _answered(index, _decode(line, 0, outcomes(index)), answer)
            elif not cut:
                _, status = os.waitpid(pid, 0)
        os.close(read_end)
        _kill(pid)
        if status is None:
            _, status = os.waitpid(pid, 0)
        _bury()
        if left:
            _answered(left.pop(0), _cut(cut, timeout_s) if cut else _ended(status), answer)


def _start_together(left, work, channel):
    gc.freeze()
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(write_end)
        return pid, read_end
    try:
        shut(False)
        os.setsid()
        os.close(read_end)
        os.close(channel)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for index in left:
            data = json.dumps(_result(lambda index=index: work(index))).encode() + b"\n"
            while data:
                data = data[os.write(write_end, data) :]
    finally:
        os._exit(0)


def _line(fd, pid, buffer, deadline):
    """Return (the next line or None, what follows it, why no more is read)."""
    while b"\n" not in buffer:
        data, timed_out, ended = _piece(fd, pid, deadline)
        if timed_out or (ended and not data):
            return None, buffer, HANG if timed_out else ""
        buffer += data
        if len(buffer) > MOST_BYTES:
            return None, buffer, FLOOD
    line, _, rest = buffer.partition(b"\n")
    return line, rest, ""


def _result(work):
    try:
        result = around.called(work)
    except BaseException as error:
        result = crashed(error)
    if around.escapes():
        result["escaped"] = around.escapes()
    # The process leaves without the interpreter's own end: what it printed would be lost. Before
    # the answer, so that a stream that hangs is a hang like any other.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    return result


def _answered(index, result, answer):
    mine = result.get("escaped")
    known = mine if isinstance(mine, list) else []
    known += [why for why in around.escapes() if why not in known]
    if known:
        result["escaped"] = known
    result["case"] = index
    answer(result)
    return result.get("outcome")


def crashed(error):
    """Describe an exception as a result; names the module a ModuleNotFoundError lacks."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    try:
        message = str(error)[:200]
    except Exception:
        message = ""
    result = {
        "outcome": "crashed",
        "detail": "".join(lines)[-DETAIL:],
        "error": type(error).__name__,
        "message": message,
    }
    missing = missing_module(error)
    if missing:
        result["missing_module"] = missing
    return result


def missing_module(error):
    """Return the top-level module whose absence raised the error, or an empty string."""
    seen = 0
    while error is not None and seen < 20:
        if isinstance(error, ModuleNotFoundError) and error.name:
            return error.name.split(".")[0]
        error = error.__cause__ or error.__context__
        seen += 1
    return ""


def reward_result(value):
    """Describe whatever a verifier returned; JSON cannot say NaN, so text does."""
    if isinstance(value, bool):
        return {"outcome": "reward", "reward": float(value), "reward_type": "bool"}
    plain = value
    if not isinstance(plain, (int, float)) and hasattr(plain, "item") and hasattr(plain, "dtype"):
        try:
            plain = plain.item()
        except Exception:
            plain = value
    if isinstance(plain, bool):
        return {"outcome": "reward", "reward": float(plain), "reward_type": "bool"}
    if isinstance(plain, (int, float)):
        try:
            number = float(plain)
        except OverflowError:
            return {"outcome": "reward", "reward": "overflow", "reward_type": "number"}
        if math.isfinite(number):
            return {"outcome": "reward", "reward": number, "reward_type": "number"}
        return {"outcome": "reward", "reward": repr(number), "reward_type": "number"}
    return {"outcome": "reward", "reward": repr(value)[:200], "reward_type": type(value).__name__}


def load_file(path, name="qh_subject"):
    """Import a module from a file of the environment, with its folder first on the path."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _read(fd, pid, deadline):
    """Read until the case ends, return (what it wrote, why no more is read).

    A process that it left behind may hold the pipe open for ever.
    """
    chunks = []
    size = 0
    while True:
        chunk, timed_out, ended = _piece(fd, pid, deadline)
        if timed_out or (ended and not chunk):
            return b"".join(chunks), HANG if timed_out else ""
        size += len(chunk)
        if size > MOST_BYTES:
            return b"", FLOOD
        chunks.append(chunk)


def _piece(fd, pid, deadline):
    """Return (some bytes, whether time ran out, whether no more will come without bytes)."""
    while True:
        around.look()
        left = deadline - time.monotonic()
        if left <= 0:
            return b"", True, False
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        ready, _, _ = select.select([fd], [], [], 0 if ended else min(left, 0.1))
        if ready:
            chunk = os.read(fd, 65536)
            if chunk or ended:
                return chunk, False, not chunk
            # Closed by a process that lives on: waiting for its end would have no end itself.
            time.sleep(0.001)
        elif ended:
            return b"", False, True


def _kill(pid):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _bury():
    """Wait for what earlier cases left behind: the first process of a world inherits orphans."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _decode(data, status, outcomes):
    """Return what a case says of itself, in the form it should have, or else how it ended."""
    return claims.taken(data, outcomes) or _ended(status)


def _cut(why, timeout_s):
    if why == FLOOD:
        return {"outcome": "no_reward", "detail": "its answer is longer than %d B" % MOST_BYTES}
    return {"outcome": "timeout", "detail": "no result within %g s" % timeout_s}


def _ended(status):
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return {"outcome": "killed", "detail": "ended by signal %d" % number, "signal": number}
    return {
        "outcome": "no_reward",
        "detail": "the process left with status %d and gave no result" % os.WEXITSTATUS(status),
        "exit_code": os.WEXITSTATUS(status),
    }
