"""What scripts share that run two benches in turn, pair by pair: starting them, reading their
speeds, and whether the machine is quiet.

Absolute speeds on a shared machine move by the minute; the ratio of two runs that follow each other
moves less.
"""
import json
import os
import shlex
import subprocess
import time
from pathlib import Path

BUSY_CORES = 0.15  # of other work: more makes spinning engines collapse


class BenchError(Exception):
    """A run that gave no figure; its text is one line."""


def run(command, folder=None, with_stderr=False):
    """What a command prints; a failure becomes one line with the end of its stderr."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False, cwd=folder)
    except OSError as error:
        raise BenchError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).split("\n")[-1]
        raise BenchError(f"{shlex.join(str(w) for w in command)}: status {done.returncode}: {last}")
    return done.stdout + (done.stderr if with_stderr else "")


# --- Is the machine quiet? ------------------------------------------------------------------------

def cpu_ticks():
    """(busy, all) ticks of all CPUs."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, sum(fields)


def process_ticks():
    """{pid: (name, ticks)} of every process but this one."""
    ticks = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue  # it has ended
        name, _, rest = text[text.index("(") + 1:].rpartition(")")
        fields = rest.split()
        ticks[int(folder.name)] = (name, int(fields[11]) + int(fields[12]))
    return ticks


def describe_noise(seconds=0.5):
    """What else runs, as one line, or None on a quiet machine."""
    before, processes = cpu_ticks(), process_ticks()
    time.sleep(seconds)
    after, later = cpu_ticks(), process_ticks()
    cores = (after[0] - before[0]) / max(1, after[1] - before[1]) * (os.cpu_count() or 1)
    if cores < BUSY_CORES:
        return None
    used = sorted(((ticks - processes.get(pid, (name, ticks))[1], name, pid)
                   for pid, (name, ticks) in later.items()), reverse=True)
    names = ", ".join(f"{name} ({pid})" for ticks, name, pid in used[:3] if ticks > 0)
    return (f"the machine is not quiet: other work uses {cores:.1f} of {os.cpu_count()} cores"
            f"{': ' + names if names else ''}; load average {os.getloadavg()[0]:.1f}")


def cpu_name():
    """The CPU's brand, family and model, as lscpu has them."""
    fields = {}
    for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].split("\n"):
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    return (
        f"{fields.get('model name', 'unknown CPU')}, family {fields.get('cpu family', '?')} model "
        f"{fields.get('model', '?')}")


# --- What a bench said ----------------------------------------------------------------------------

def samples_of(text, program):
    """Tokens a second of each repetition of the one test of a run with `-o json`: llama-bench and
    larder have these fields in common.
    """
    try:
        row = json.loads(text)[-1]
        return [float(speed) for speed in row.get("samples_ts") or [row["avg_ts"]]]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise BenchError(
            f"{program}: its output is not the JSON of a bench: {text[:80]!r}") from error
