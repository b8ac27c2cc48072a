"""A world can be changed: its clock, locale, time zone and CPU count, as a program sees them."""

from __future__ import annotations

import os
import time

from qualityhub.engine.sandbox.conformance.kit import QUICK, Kit, NotEnforced, check
from qualityhub.engine.sandbox.port import Command, Mount
from qualityhub.engine.sandbox.props import CLOCK_TARGET, clock_environment, clock_library

_YEAR_S = 365 * 86_400
_SLACK_S = 600
_WAITS = """
import json, select, threading, time
wall, mono = time.time(), time.monotonic()
time.sleep(0.2)
threading.Event().wait(0.2)
select.select([], [], [], 0.2)
print(json.dumps([wall, time.time() - wall, mono, time.monotonic() - mono]))
"""


@check
def check_clock_shift(kit: Kit) -> str:
    """A shifted clock is seen through the C library; the monotonic clock is true; waits end."""
    library = clock_library()
    if library is None:
        raise NotEnforced("libfaketime for this machine is not installed")
    plain = kit.ask(_WAITS)
    moved = kit.ask(
        _WAITS,
        env={**kit.env, **clock_environment(_YEAR_S), "LD_PRELOAD": CLOCK_TARGET},
        mounts=(Mount(CLOCK_TARGET, library),),
    )
    if abs(plain[0] - time.time()) > _SLACK_S:
        return f"without a shift it is {plain[0] - time.time():+.0f} s off"
    if abs(moved[0] - plain[0] - _YEAR_S) > _SLACK_S:
        return f"it is {moved[0] - plain[0]:+.0f} s ahead, not {_YEAR_S}"
    if not 0 <= moved[2] - plain[2] <= _SLACK_S:
        return f"the monotonic clock moved by {moved[2] - plain[2]:+.0f} s"
    waited = [round(seconds, 1) for seconds in (moved[1], moved[3])]
    return "" if all(0.5 <= seconds <= 20 for seconds in waited) else f"waits took {waited} s"


@check
def check_locale_and_time_zone(kit: Kit) -> str:
    """The locale and the time zone of the environment are the command's."""
    seen = kit.ask(
        "import json,locale,time\n"
        "name=locale.setlocale(locale.LC_ALL,'')\n"
        "print(json.dumps([name, time.localtime(0).tm_gmtoff]))",
        env={**kit.env, "LC_ALL": "C.UTF-8", "TZ": "QHT-05:45"},
    )
    return "" if seen == ["C.UTF-8", 20_700] else f"they were {seen}"


@check
def check_cpu_count(kit: Kit) -> str:
    """A command that is given one CPU may use one, and programs that ask see one."""
    ours = len(os.sched_getaffinity(0))
    if ours < 2:
        raise NotEnforced("this host has one CPU")
    asked = "import json,os; print(json.dumps(len(os.sched_getaffinity(0))))"
    every, one = kit.ask(asked), kit.ask(asked, cpus=1)
    if every < 2 or one != 1:
        return f"it may use {every} CPUs, and {one} where one was asked for"
    command = Command(argv=("nproc",), env=kit.env, base=kit.base, cpus=1, limits=QUICK)
    seen = kit.sandbox.run(command)
    return "" if seen.stdout == b"1\n" or seen.exit_code else f"nproc says {seen.stdout!r}"
