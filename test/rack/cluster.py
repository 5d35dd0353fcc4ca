"""The cluster that every rack runs: servers of two sockets each, one with weights and one with
attention, or all attention on a server of its own, and requests to it.
"""
import itertools
import pathlib
import sys
import tomllib

from larder_testing import clusters, story
from larder_testing.processes import Process

ROLES = ("weight", "attention")  # of a server's sockets; the first server's third is SERVING
SERVING = "serving"
CLIENT = pathlib.Path(__file__).resolve().parent / "client.py"


def manifest(servers, *, transport, context=512, device=None, cores=("cores:0", "cores:1"),
             serving=True, attention=None, patience_s=None):
    """servers: (name, address) of each. Stage by stage in that order; the first one has the serving
    socket, or whoever runs `larder run --join` there serves. attention: (name, address) of a
    further server, which has the attention sockets of all of them. patience_s: the serving
    socket's, for what is away."""
    made, elsewhere = [], []
    options = "--host 0.0.0.0" + (f" --patience {patience_s}" if patience_s else "")
    for name, address in servers:
        sockets = [clusters.socket(f"{name}-weight", "weight", cores[0])]
        of_attention = elsewhere if attention else sockets
        of_attention.append(
            clusters.socket(f"{name}-attention", "attention", cores[1],
                            **({"for": f"{name}-weight"} if attention else {})))
        if serving and not made:
            sockets.append(clusters.socket(SERVING, "serving", cores[1], options=options))
        made.append(clusters.server(name, *sockets, address=address))
    if attention:
        made.append(clusters.server(attention[0], *elsewhere, address=attention[1]))
    return clusters.manifest(*made, name="rack", model={"context": context, "slots": 4},
                             link={"transport": transport, "device": device})


def sockets(manifest_path):
    """The names of each server's sockets, as a manifest has them."""
    servers = tomllib.loads(pathlib.Path(manifest_path).read_text(encoding="utf-8"))["server"]
    return {server["name"]: [one["name"] for one in server["socket"]] for server in servers}


def truth(larder, model, tokens, context):
    """The text that one process writes: what every cluster must write, to the byte."""
    return story.alone(larder, model, tokens, "-c", str(context)).decode().rstrip("\n")


def client(protocol, address, tokens):
    return [
        sys.executable, "-B",
        str(CLIENT), f"--{protocol}", address, "-n",
        str(tokens), "-p", story.PROMPT
    ]


def join(larder, server, manifest_path, key, model, tokens):
    """One `larder run --join`, of a cluster without a serving socket."""
    return [
        larder, "run", "--manifest", manifest_path, "--server", server, "--join", "--link-key", key,
        "-m", model, "-n",
        str(tokens), *story.GREEDY
    ]


class Request(Process):
    """A program that prints a story: a client, or `larder run --join`. Several may run at once."""
    numbers = itertools.count()

    def __init__(self, command, folder):
        super().__init__(command, folder / f"request{next(self.numbers)}")

    def text(self):
        return self.out().rstrip("\n")
