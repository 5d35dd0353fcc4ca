"""What reading a request costs, measured by `request_cost` (bench/request_cost.cc): the server's
own code, in a process that may die of it.
"""
import dataclasses
import json
import resource
import selectors
import signal
import subprocess

MOST_ADDRESS_SPACE = 6 << 30  # a process that wants more than this has failed


@dataclasses.dataclass
class Cost:
    """read_s, mask_s: CPU of reading the request and of the longest of its masks. bytes: the most
    memory that either had at a time. kept: what is left when the request has ended. ended: why
    there is no more to say; empty: the process lives."""
    read_s: float = 0.0
    mask_s: float = 0.0
    masks_s: float = 0.0
    bytes: int = 0
    kept: int = 0
    refused: str = ""
    ended: str = ""

    def __str__(self):
        if self.ended:
            return self.ended
        return (f"{self.read_s:.3f} s" + (f", a mask {self.mask_s:.3f} s" if self.masks_s else "") +
                f", {self.bytes / 1e6:.0f} MB, then {self.kept / 1e6:.1f}" +
                (f"; refused: {self.refused[:120]}" if self.refused else ""))


def _limit():
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Meter:
    """One process, started again when an input has ended it. For a with statement."""

    def __init__(self, program, model, *options, limited=True):
        """`limited`: its address space; a sanitizer wants terabytes."""
        self.command, self.limited, self.process = [program, model, *options], limited, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                            preexec_fn=_limit if self.limited else None)
            assert (self.process.stdout.readline() == b"ready\n"
                    ), f"{self.command} did not start: {self.process.wait()}"

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None

    def cost(self, path, body, masks=3, limit_s=10.0):
        """The cost of a body of bytes. More than limit_s of waiting ends the process: the input's
        fault, unless the machine is busy.
        """
        self.start()
        try:
            self.process.stdin.write(f"{path} {masks} {len(body)}\n".encode() + body)
            self.process.stdin.flush()
            line = self._line(limit_s)
        except BrokenPipeError:
            line = b""
        if line:
            said = json.loads(line)
            return Cost(said["read_s"], said.get("mask_s", 0), said.get("masks_s", 0),
                        max(said["read_bytes"], said.get("mask_bytes", 0)), said["kept_bytes"],
                        said["refused"])
        cost = Cost(ended=f"not done after {limit_s:.0f} s")
        if line is not None:
            status = self.process.wait()
            cost.ended = (f"killed by {signal.Signals(-status).name}"
                          if status < 0 else f"ended with {status}")
        self.stop()
        return cost

    def _line(self, limit_s):
        """None: nothing was said in time; empty: the process has ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            return self.process.stdout.readline() if selector.select(limit_s) else None
