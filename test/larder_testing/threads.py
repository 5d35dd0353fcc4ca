"""CPU and memory of a server's process, as the kernel counts them: they do not depend on what else
the machine does, as waiting does.
"""
import collections
import pathlib


def cpu_seconds(pid):
    """{thread's name: seconds of CPU}, threads of one name together."""
    seconds = collections.Counter()
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            seconds[(task / "comm").read_text(encoding="ascii").strip()] += int(
                (task / "schedstat").read_text(encoding="ascii").split()[0]) / 1e9
        except (OSError, ProcessLookupError):  # it has ended
            pass
    return seconds


def any_runs(pid, names):
    """Whether one of the threads of these names runs, or would if it had a core."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            stat = (task / "stat").read_text(encoding="ascii")
        except (OSError, ProcessLookupError):
            continue
        name, _, rest = stat.partition("(")[2].rpartition(")")
        if name in names and rest.split()[0] in "RD":
            return True
    return False


def _status(pid, name):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(name)


def resident_bytes(pid):
    return _status(pid, "VmRSS")


def begin_peak(pid):
    """From now on peak_bytes() is the most that is resident from now on."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def peak_bytes(pid):
    return _status(pid, "VmHWM")
