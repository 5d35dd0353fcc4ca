"""A cluster in guests that boot systemd: the package installed by dpkg, sockets as units, brought
up by larder-cluster over ssh.
"""
import json
import pathlib
import re
import subprocess
import sys
import time

import cluster
import guest
import image
from larder_testing import ROOT
from larder_testing.package import make_package
from larder_testing.ports import free_port
from larder_testing.waiting import until

LARDER_CLUSTER = ROOT / "deploy" / "larder-cluster"
MANIFEST, MODELS = "/etc/larder/cluster.toml", "/var/lib/larder/models"


def package_and_depends(build, folder):
    """The .deb of a build folder, and the packages that it depends on."""
    image.require("cpack", "dpkg-shlibdeps")
    package = make_package(build, folder)
    depends = subprocess.run(["dpkg-deb", "-f", package, "Depends"], capture_output=True, text=True,
                             check=True).stdout
    return package, [re.split(r"[ (|]", part.strip())[0] for part in depends.split(",")]


class GuestServer:
    """A server of the cluster: like netns.NetServer, but with its own power and network cable."""

    def __init__(self, owner, machine, config):
        self.cluster, self.machine, self.name, self.config = owner, machine, machine.name, config

    def ssh(self, script, limit_s=120, check=True):
        done = subprocess.run(["ssh", "-F", self.config, self.name, script],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=limit_s)
        if check and done.returncode:
            raise RuntimeError(
                f"{self.name}: {script}: status {done.returncode}: {done.stdout.strip()}")
        return done.stdout

    def prepare(self):
        """Sets up what a server needs after each boot (soft-RoCE), and once (the package; its disk
        is the guest's memory).
        """
        self.ssh("rdma link show | grep -q rxe0 || rdma link add rxe0 type rxe netdev eth0; "
                 "udevadm settle")
        self.ssh("dpkg -i /share/larder.deb")

    def names(self):
        return cluster.sockets(self.cluster.manifest)[self.name]

    def signal(self, socket, name):
        self.ssh(f"systemctl kill --signal={name} larder@{socket}.service")

    def kill(self, socket):
        self.signal(socket, "KILL")

    def restart(self, socket):
        self.ssh(f"systemctl restart --no-block larder@{socket}.service")

    def freeze(self, socket):
        self.signal(socket, "STOP")

    def thaw(self, socket):
        self.signal(socket, "CONT")

    def lose(self, percent):
        """Drops a share of the packets that this server sends, with netem."""
        self.ssh(
            "tc qdisc"
            f" {f'replace dev eth0 root netem loss {percent}%' if percent else 'del dev eth0 root'}"
        )

    def power_off(self):
        self.machine.power_off()
        subprocess.run(["ssh", "-F", self.config, "-O", "exit", self.name], capture_output=True)

    def power_on(self):
        """Starts a fresh server: its disk was its memory, so the package and the cluster's files
        are installed again.
        """
        self.machine.start()
        until(self.machine.is_up, guest.UP_WITHIN_S, f"{self.name} did not come up again",
              pause_s=0.2)
        self.prepare()
        self.cluster.tool("push", "-m", self.cluster.model, "--only", self.name)
        self.cluster.tool("up", "--only", self.name, check=False)

    def cut(self):
        self.machine.set_link(False)

    def mend(self):
        self.machine.set_link(True)


class GuestCluster:
    """Guests a, b, ... of two packages each. attention: the name of a further one that has all
    attention sockets. Use as a context manager.
    """

    journal = True  # what sockets say has fields

    def __init__(self, names, larder, model, build, cache, transport="verbs", attention=None):
        cache = image.cache_folder(cache)
        boot = image.boot_files(cache)
        image.require("ssh", "ssh-keygen")
        self.larder, self.model = larder, pathlib.Path(model)
        self.rack = guest.Rack(boot)
        package, depends = package_and_depends(build, self.rack.folder / "package")
        (self.rack.folder / "share" / "larder.deb").write_bytes(package.read_bytes())
        with image.locked(cache):
            root = image.make_root(cache, depends)
        for name in [*names, *([attention] if attention else [])]:
            self.rack.add(name, sockets=2, memory_mib=1024, image=root, ssh_port=free_port(),
                          ports={8080: free_port(), 7070: free_port()} if name == names[0] else {})
        self.config = self.rack.make_ssh()
        self.servers = {g.name: GuestServer(self, g, self.config) for g in self.rack.guests}
        self.first = self.servers[names[0]]
        self.manifest = self.rack.folder / "cluster.toml"
        places = {g.name: (g.name, g.address) for g in self.rack.guests}
        self.manifest.write_text(
            cluster.manifest([places[name] for name in names], transport=transport,
                             device="rxe0" if transport == "verbs" else None,
                             cores=("package:0", "package:1"), attention=places.get(attention)))
        self.started = time.monotonic()
        self.marked = {}

    def __enter__(self):
        self.rack.__enter__()
        return self

    def __exit__(self, *_):
        self.rack.__exit__()

    def say(self, text):
        print(f"{time.monotonic() - self.started:6.1f} s  {text}", flush=True)

    def start_guests(self):
        if not self.rack.start_all() and not self.rack.start_all():
            raise RuntimeError("guests did not come up, twice")
        self.say(f"{len(self.servers)} guests are up")

    def boot(self):
        self.start_guests()
        for server in self.servers.values():
            server.prepare()
        self.say("the package is installed")

    def tool(self, command, *arguments, check=True):
        """larder-cluster COMMAND: its output."""
        done = subprocess.run([
            sys.executable, "-B", LARDER_CLUSTER, command, "--manifest", self.manifest,
            "--ssh-config", self.config, *arguments
        ], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.say(f"larder-cluster {command}: status {done.returncode}\n{done.stdout.rstrip()}")
        if check and done.returncode:
            self.tool("logs", check=False) if command != "logs" else None
            raise RuntimeError(f"larder-cluster {command} ended with {done.returncode}")
        return done.stdout

    def bring_up(self):
        self.boot()
        self.tool("check", "-m", self.model)
        self.tool("push", "-m", self.model)
        self.tool("up", "--timeout", "120")

    def request(self, tokens, protocol="http"):
        """Requests by a client outside the guests, through the first guest's other network card."""
        address = f"127.0.0.1:{self.first.machine.ports[8080 if protocol == 'http' else 7070]}"
        return cluster.Request(cluster.client(protocol, address, tokens), self.rack.folder)

    def health(self):
        command = [
            *cluster.client("http", f"127.0.0.1:{self.first.machine.ports[8080]}", 0), "--health",
            "--timeout", "20"
        ]
        return subprocess.run(command, capture_output=True, text=True).stdout

    def mark_logs(self):
        self.marked = {
            name: int(server.ssh("date +%s")) for name, server in self.servers.items()
            if server.machine.running()
        }

    def new_logs(self):
        """For each socket its messages since mark_logs(), from its server's journal, with the field
        that says which peer was lost.

        systemd's messages about a unit count as its socket's. Servers that are off have none.
        """
        said = {}
        for name, server in self.servers.items():
            if not server.machine.running():
                continue
            lines = server.ssh(
                f"journalctl --no-pager -o json --since=@{self.marked.get(name, 0)} -u 'larder@*'",
                check=False)
            for line in filter(lambda text: text.startswith("{"), lines.splitlines()):
                entry = json.loads(line)
                unit = entry.get("UNIT") or entry.get("_SYSTEMD_UNIT") or ""
                socket = entry.get("LARDER_SOCKET") or unit.removeprefix("larder@").removesuffix(
                    ".service")
                peer = f" LARDER_PEER={entry['LARDER_PEER']}." if "LARDER_PEER" in entry else ""
                said[socket] = said.get(socket, "") + f"{entry.get('MESSAGE')}{peer}\n"
        return said
