"""A rack without guests: each server is a network namespace of this machine, connected to a bridge.
TCP only, with real packets.

Namespaces keep abstract Unix sockets apart too, so sockets of two servers can reach each other only
over the network.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import cluster
import guest
import image
from image import Missing
from larder_testing.clusters import make_key
from larder_testing.processes import Unit


def become_root():
    """Namespaces need root, on this machine or in a user namespace, in which this program then
    starts again.
    """
    if os.geteuid() == 0:
        return
    if "RACK_NAMESPACE" in os.environ:
        raise Missing("neither root nor user namespaces: network namespaces can't be made")
    inside = [
        "unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c",
        'mount -t tmpfs tmpfs /run && exec "$@"', "sh"
    ]
    if subprocess.run([*inside, "true"], capture_output=True).returncode:
        raise Missing("neither root nor user namespaces: network namespaces can't be made")
    os.environ["RACK_NAMESPACE"] = "1"
    os.execvp("unshare", [*inside, sys.executable, *sys.argv])


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class NetServer:
    def __init__(self, rack, name, number):
        self.name, self.address, self.rack = name, f"10.6.0.{number}", rack
        self.namespace, self.port = f"{rack.prefix}{name}", f"{name}0"
        self.sockets = {}
        ip("netns", "add", self.namespace)
        ip("-n", rack.wire, "link", "add", self.port, "type", "veth", "peer", "name", "eth0",
           "netns", self.namespace)
        ip("-n", rack.wire, "link", "set", self.port, "master", "bridge", "up")
        ip("-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", self.namespace, "link", "set", device, "up")

    def command(self, arguments):
        return ["nice", "nsenter", f"--net=/run/netns/{self.namespace}", "--", *arguments]

    def names(self):
        return list(self.sockets)

    def kill(self, socket):
        self.sockets[socket].signal(signal.SIGKILL)

    def restart(self, socket):
        self.sockets[socket].signal(signal.SIGTERM)

    def freeze(self, socket):
        self.sockets[socket].signal(signal.SIGSTOP)

    def thaw(self, socket):
        self.sockets[socket].signal(signal.SIGCONT)

    def cut(self):
        ip("-n", self.rack.wire, "link", "set", self.port, "down")

    def mend(self):
        ip("-n", self.rack.wire, "link", "set", self.port, "up")

    def lose_data(self):
        """Cuts one connection as a firewall does that forgets it: the one that carried the most
        bytes, which has frames, not beats.
        """
        image.require("ss", "nft")
        lines = subprocess.run(self.command(["ss", "-Htin", "state", "established"]),
                               capture_output=True, text=True, check=True).stdout.splitlines()
        most, ends = -1, None
        for about, counts in zip(lines, lines[1:]):
            found = re.search(rf" ({re.escape(self.address)}):(\d+) +(\S+):(\d+)", about)
            carried = sum(int(n) for n in re.findall(r"bytes_(?:acked|received):(\d+)", counts))
            if found and carried > most:
                most, ends = carried, (found[2], found[4])
        if ends is None:
            raise RuntimeError(f"{self.name} has no connection to another server")
        here, there = ends
        rules = "\n".join([
            "table inet rack {", "chain to { type filter hook output priority 0;",
            f"tcp sport {here} tcp dport {there} drop", "}",
            "chain from { type filter hook input priority 0;",
            f"tcp sport {there} tcp dport {here} drop", "}", "}"
        ])
        subprocess.run(self.command(["nft", "-f", "-"]), input=rules, text=True, check=True)

    def find_data(self):
        subprocess.run(self.command(["nft", "delete", "table", "inet", "rack"]), check=True)

    def power_off(self):
        for socket in self.sockets.values():
            socket.kill()
        self.cut()

    def power_on(self):
        self.mend()
        for socket in self.sockets.values():
            socket.start()


class NetRack:
    """Servers by name; a context manager that ends their processes and removes the namespaces at
    its exit.
    """

    def __init__(self, names):
        become_root()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="larder-rack-"))
        self.prefix = f"lr{os.getpid()}"
        self.wire = f"{self.prefix}wire"
        self.servers = {}
        try:
            # Each server and the bridge have namespaces of their own, so this machine's network is
            # not touched.
            ip("netns", "add", self.wire)
            ip("-n", self.wire, "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
            ip("-n", self.wire, "link", "set", "bridge", "up")
            for number, name in enumerate(names, 1):
                self.servers[name] = NetServer(self, name, number)
        except Missing:
            self.__exit__()
            raise

    def __enter__(self):
        guest.end_by_sigterm()
        return self

    def __exit__(self, *_):
        for server in self.servers.values():
            for socket in server.sockets.values():
                socket.kill()
        for name in [self.wire, *(s.namespace for s in self.servers.values())]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class NetCluster(NetRack):
    """The cluster of cluster.py in such a rack, with the program of a build folder. attention: the
    name of a further server that has all attention sockets. patience_s: as in cluster.manifest.
    """

    journal = False

    def __init__(self, names, larder, model, context, serving=True, attention=None,
                 patience_s=None):
        super().__init__([*names, *([attention] if attention else [])])
        self.larder, self.model, self.serving = larder, model, serving
        self.manifest = self.folder / "cluster.toml"
        places = {s.name: (s.name, s.address) for s in self.servers.values()}
        self.manifest.write_text(
            cluster.manifest([places[name] for name in names], transport="tcp", context=context,
                             serving=serving, attention=places.get(attention),
                             patience_s=patience_s))
        self.key = make_key(self.folder)
        self.marks = {}

    def bring_up(self):
        sockets = cluster.sockets(self.manifest)
        for server in self.servers.values():
            for name in sockets[server.name]:
                command = [
                    self.larder, "node", "--manifest", self.manifest, "--server", server.name,
                    "--socket", name, "--link-key", self.key, "-m", self.model
                ]
                server.sockets[name] = Unit(name, server.command(command),
                                            self.folder / f"{name}.log")
                server.sockets[name].start()

    def request(self, tokens, protocol="http"):
        server = self.servers["a"]
        command = (cluster.client(
            protocol, "127.0.0.1:8080" if protocol == "http" else "127.0.0.1:7070", tokens)
                   if self.serving else cluster.join(self.larder, server.name, self.manifest,
                                                     self.key, self.model, tokens))
        return cluster.Request(server.command(command), self.folder)

    def health(self):
        """The serving socket's answer to GET /health: "200 ...", "503 ..."; empty if nothing
        answers.
        """
        command = [*cluster.client("http", "127.0.0.1:8080", 0), "--health", "--timeout", "5"]
        return subprocess.run(self.servers["a"].command(command), capture_output=True,
                              text=True).stdout

    def logs(self):
        return {
            name: socket.said() for server in self.servers.values()
            for name, socket in server.sockets.items()
        }

    def mark_logs(self):
        self.marks = {name: len(text) for name, text in self.logs().items()}

    def new_logs(self):
        return {name: text[self.marks.get(name, 0):] for name, text in self.logs().items()}
