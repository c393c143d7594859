"""Hardware counters of this process by the ``perf`` program of Linux, around a call."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SEPARATOR = ";"  # perf puts commas into some units, and quotes nothing
_PATIENCE = 20.0  # seconds for an answer
_UNKNOWN, _UNSUPPORTED = "perf knows no such event on this processor", "perf says not supported"
_UNITS = Path("/sys/bus/event_source/devices")  # where Linux lists what can count
# A processor with two kinds of cores counts an event on each: "cpu_core/EVENT/u" beside "cpu_atom/EVENT/u".
_EVENT = re.compile(r"(?:cpu_\w+/)?(.+?)(?:/\w*)?(?::\w+)?")


CPUINFO = Path("/proc/cpuinfo")


def of_processor(field: str, cpuinfo: Path = CPUINFO) -> str:
    """What Linux says of the first processor under a name such as "vendor_id"; "" where it says nothing."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


@dataclass
class Counts:
    """What perf counted, by event, and for each event that it did not count a reason of one line.

    ``running``: the least share of the time, in percent, that a counter ran, where events had to take turns; perf
    scales such counts up.
    """

    values: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    running: float = 100.0


def count(events: Iterable[str], run: Callable[[], Any]) -> Counts:
    """Count events in all threads of this process, in user space, while ``run`` runs.

    Without any event that can be counted, ``run`` is not called. Threads that ``run`` is the first to start are
    counted too, as children of those that are there.
    """
    wanted = list(dict.fromkeys(events))
    program = shutil.which("perf")
    if program is None:
        return Counts(absent=dict.fromkeys(wanted, "there is no perf program on the PATH"))
    absent = {event: reason for event in wanted if (reason := _why_not(program, event))}
    usable = [event for event in wanted if event not in absent]
    if not usable:
        if not any(_UNITS.glob("cpu*")) and set(absent.values()) <= {_UNKNOWN, _UNSUPPORTED}:
            absent = dict.fromkeys(wanted, "the machine shows no counters of its processor, as many virtual ones do")
        return Counts(absent=absent)
    text, complaint = _around(program, usable, run)
    values, missing, running = parse(text)
    for event in usable:
        if event not in values:
            absent[event] = missing.get(event, complaint or "perf printed no count of it")
    return Counts(values, absent, running)


def parse(text: str) -> tuple[dict[str, float], dict[str, str], float]:
    """Counts, reasons where there is none, and the least running time in percent, from what ``perf stat -x ;`` prints.

    The fields of a line: value, unit, event, running time in ns, the same in percent, and more that is not used.
    """
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    running = 100.0
    for line in text.splitlines():
        fields = line.split(_SEPARATOR)
        if len(fields) < 5:
            continue
        value, event = fields[0].strip(), _plain_name(fields[2])
        if value.startswith("<"):
            missing[event] = f"perf says {value.strip('<>')}"
            continue
        try:
            values[event] = values.get(event, 0.0) + float(value)
            running = min(running, float(fields[4]))
        except ValueError:
            continue
    return values, missing, running


# -- helpers -----------------------------------------------------------------------


def _plain_name(printed: str) -> str:
    """An event as it was asked for, from how perf prints it."""
    match = _EVENT.fullmatch(printed.strip())
    return match[1] if match else printed


def _why_not(program: str, event: str) -> str:
    """Why an event cannot be counted, on one line; "" when it can: perf is tried on a program that does nothing."""
    command = [program, "stat", "-x", _SEPARATOR, "-e", f"{event}:u", "--", "true"]
    try:
        tried = subprocess.run(
            command, capture_output=True, text=True, env=_environment(), timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"perf does not run: {_first_line(str(error))}"
    if tried.returncode:
        if "event syntax error" in tried.stderr:
            return _UNKNOWN
        return f"perf says: {_first_line(tried.stderr)}"
    values, missing, _ = parse(tried.stderr)
    reason = missing.get(event, "")
    if event in values or reason == "perf says not counted":  # nothing happened while it looked
        return ""
    return reason or f"perf says: {_first_line(tried.stderr)}"


def _around(program: str, events: list[str], run: Callable[[], Any]) -> tuple[str, str]:
    """What perf prints of a call, and its complaint if it could not follow. Counters run only during the call."""
    commands, answers = os.pipe(), os.pipe()
    command = [
        program, "stat", "-x", _SEPARATOR, "-e", ",".join(f"{event}:u" for event in events), "--delay", "-1",
        "--control", f"fd:{commands[0]},{answers[1]}", "-p", str(os.getpid()),
    ]  # fmt: skip
    given = (commands[0], answers[1])
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=_environment(), pass_fds=given
        )
        try:
            followed = _tell(commands[1], answers[0], "enable")
            if followed:
                run()
                followed = _tell(commands[1], answers[0], "disable")
            process.send_signal(signal.SIGINT)
            _, printed = process.communicate(timeout=_PATIENCE)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"perf does not run: {_first_line(str(error))}"
    finally:
        for end in (*commands, *answers):
            os.close(end)
    return (printed, "") if followed else ("", f"perf does not answer: {_first_line(printed)}")


def _tell(commands: int, answers: int, word: str) -> bool:
    """Send perf a command, and wait until it says that it followed."""
    os.write(commands, f"{word}\n".encode())
    ready, _, _ = select.select([answers], [], [], _PATIENCE)
    return bool(ready) and os.read(answers, 64).startswith(b"ack")


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip(" ;:")), "nothing")
