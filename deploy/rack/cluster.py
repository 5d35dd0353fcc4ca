"""The cluster that every rack runs: servers of two sockets each, one with weights and one with attention, and requests to it."""
import os
import pathlib
import secrets
import subprocess
import sys
import time

PROMPT = "Once upon a time"
ROLES = ("weight", "attention")  # of a server's sockets; the first server's third is SERVING
SERVING = "serving"
CLIENT = pathlib.Path(__file__).resolve().parent / "client.py"
STORY = ["-p", PROMPT, "--temp", "0", "--ignore-eos"]  # the same tokens wherever and whenever they are computed


def manifest(servers, *, transport, context=512, device=None, cores=("cores:0", "cores:1"), serving=True):
    """servers: (name, address) of each. Stage by stage in that order; the first one has the serving socket, or whoever runs
    `larder run --join` there serves."""
    lines = ['name = "rack"', "[model]", f"context = {context}", "slots = 4", "[link]", f'transport = "{transport}"']
    if device:
        lines.append(f'device = "{device}"')
    for name, address in servers:
        lines += ["[[server]]", f'name = "{name}"', f'address = "{address}"']
        for role in ROLES:
            lines += ["[[server.socket]]", f'name = "{name}-{role}"', f'role = "{role}"', f'cores = "{cores[role == "attention"]}"']
        if serving:
            lines += ["[[server.socket]]", f'name = "{SERVING}"', 'role = "serving"', f'cores = "{cores[1]}"', 'options = "--host 0.0.0.0"']
            serving = False
    return "\n".join(lines) + "\n"


def truth(larder, model, tokens, context):
    """The text that one process writes: what every cluster must write, to the byte."""
    done = subprocess.run([larder, "run", "-m", model, "-c", str(context), "-n", str(tokens), *STORY], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the one-process run failed: {done.stderr.strip()}")
    return done.stdout.rstrip("\n")


def client(protocol, address, tokens):
    return [sys.executable, "-B", str(CLIENT), f"--{protocol}", address, "-n", str(tokens), "-p", PROMPT]


def make_key(folder):
    """The key of a cluster whose processes are started without larder-cluster."""
    key = pathlib.Path(folder, "link.key")
    with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32) + "\n")
    return key


def join(larder, server, manifest_path, key, model, tokens):
    """One `larder run --join`, of a cluster without a serving socket."""
    return [larder, "run", "--manifest", manifest_path, "--server", server, "--join", "--link-key", key, "-m", model, "-n", str(tokens), *STORY]


class Request:
    """A program that prints a story: a client, or `larder run --join`."""

    def __init__(self, command, log):
        self.log, self.started = log, time.monotonic()
        with open(f"{log}.out", "w") as out, open(f"{log}.err", "w") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    # By handles of their own: the program's has its place in the file, which must stay where the program left it.
    def text(self):
        return pathlib.Path(f"{self.log}.out").read_text(errors="replace").rstrip("\n")

    def errors(self):
        return pathlib.Path(f"{self.log}.err").read_text(errors="replace")

    def running(self):
        return self.process.poll() is None

    def wait(self, limit_s):
        """The exit status, None if it did not end in time."""
        try:
            return self.process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self):
        if self.running():
            self.process.kill()
            self.process.wait()
