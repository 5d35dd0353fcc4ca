"""Guests: small virtual machines under QEMU, connected by a virtual wire, that need no root and no
device on the host.

Emulation (TCG) is the rule here: it runs everywhere, offers AVX2 to the guest, and is about a
hundred times slower than the machine.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from larder_testing.ports import free_port

# A boot takes 10 to 15 seconds of a core. Elapsed time says little where others use the machine: it
# is only the last resort.
UP_WITHIN_CPU_S, UP_WITHIN_S = 90, 600
MTU = 4200  # RDMA frames of 4096 bytes, plus headers


def quoted(path):
    """A path within a QEMU option, in which a comma ends a value and two commas mean one."""
    return str(path).replace(",", ",,")


class Guest:
    """One guest. It writes its console to FOLDER/NAME.console and sees FOLDER/share at /share, read
    and write.

    With `image` it boots that squashfs under systemd, else it runs /share/job on the machine's own
    root, seen read-only, and leaves the job's exit status in share/NAME.status. Of that root a job
    may use the system's programs and libraries (/usr, /lib, /etc) and nothing else: the guest has a
    /tmp, /run, /home, ... of its own, so what a job needs of the build folder is handed to it
    (Rack.hand_over).
    """


    def __init__(self, name, folder, boot, *, netdev=None, address=None, sockets=1, cores=1,
                 memory_mib=512, image=None, ssh_port=None, ports=None):
        self.name, self.folder, self.address, self.ssh_port = name, pathlib.Path(
            folder), address, ssh_port
        self.ports = ports or {}  # guest's port -> port of the host's loopback that leads there
        self.console = self.folder / f"{name}.console"
        self.control = self.folder / f"{name}.qmp"
        self.process = None
        kernel, initramfs = boot
        # thread=single: with a thread for each CPU QEMU 7.2 hung in 4 of 310 boots of 8 CPUs.
        self.command = [
            "qemu-system-x86_64", "-accel", "tcg,thread=single,tb-size=256", "-cpu", "max", "-M",
            "q35", "-m",
            str(memory_mib), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-serial", f"file:{self.console}", "-qmp",
            f"unix:{quoted(self.control)},server=on,wait=off", "-kernel",
            str(kernel), "-initrd",
            str(initramfs), "-smp", f"{sockets * cores},sockets={sockets},cores={cores},threads=1",
            "-virtfs", f"local,path={quoted(self.folder)}/share,mount_tag=share,security_model=none"
        ]
        if sockets > 1:
            for node in range(sockets):
                cpus = f"{node * cores}-{(node + 1) * cores - 1}"
                self.command += [
                    "-object", f"memory-backend-ram,id=m{node},size={memory_mib // sockets}M",
                    "-numa", f"node,nodeid={node},memdev=m{node},cpus={cpus}"
                ]
        words = [f"rack.name={name}"]
        if netdev:
            mac = "52:54:00:00:00:" + address.split(".")[-1].zfill(2)
            self.command += [
                "-netdev", f"{netdev},id=n0", "-device",
                f"virtio-net-pci,netdev=n0,mac={mac},romfile="
            ]
            words += [f"rack.address={address}/24", f"rack.mtu={MTU}"]
        if ssh_port:
            forwards = ",".join(f"hostfwd=tcp:127.0.0.1:{here}-10.0.2.15:{there}"
                                for there, here in {22: ssh_port, **self.ports}.items())
            self.command += ["-netdev", f"user,id=n1,restrict=on,{forwards}",
                             "-device", "virtio-net-pci,netdev=n1,romfile="]
        if image:
            self.command += [
                "-drive", f"file={quoted(image)},format=raw,if=none,id=d0,readonly=on", "-device",
                "virtio-blk-pci,drive=d0"
            ]
            words += [
                "rack.root=image", "systemd.show_status=no", "systemd.log_level=warning",
                "net.ifnames=0"
            ]
        else:
            self.command += [
                "-virtfs",
                "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap",
            ]
            words += ["rack.root=host"]
        # Mitigations and address randomisation cost boot time and are useless here; the check of
        # the timer fails on busy machines.
        self.command += [
            "-append",
            " ".join([("console=ttyS0 quiet panic=-1 no_timer_check mitigations=off nokaslr"
                       " random.trust_cpu=on"), *words, ]),
        ]

    def start(self):
        self.console.write_text("")
        (self.folder / "share" / f"{self.name}.status").unlink(missing_ok=True)
        with open(self.folder / f"{self.name}.qemu", "a") as log:
            self.process = subprocess.Popen(["nice", *self.command], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)

    def said(self, text):
        return text in self.console.read_text(errors="replace")

    def is_up(self):
        """Whether a job has begun, or the SSH server of an image answers."""
        if not self.ssh_port:
            return self.said("guest: up")
        try:
            with socket.create_connection(("127.0.0.1", self.ssh_port), timeout=2) as s:
                # QEMU accepts before the guest listens: only the greeting counts
                return s.recv(4) == b"SSH-"
        except OSError:
            return False

    def qmp(self, command, **arguments):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.control))
            s.settimeout(20)
            lines = s.makefile("rw")
            lines.readline()  # the greeting
            for request in ({"execute": "qmp_capabilities"},
                            {"execute": command, "arguments": arguments}):
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                answer = json.loads(lines.readline())
                while "event" in answer:
                    answer = json.loads(lines.readline())
                if "error" in answer:
                    raise RuntimeError(f"{command}: {answer['error']}")

    def set_link(self, up):
        """Pulls the cable of eth0, or plugs it in."""
        self.qmp("set_link", name="n0", up=up)

    def cpu_seconds(self):
        """CPU seconds that its process has used; infinite if it has ended."""
        try:
            fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(
                ")")[2].split()
        except FileNotFoundError:
            return float("inf")
        if self.process.poll() is not None:
            return float("inf")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime

    def running(self):
        return self.process is not None and self.process.poll() is None

    def power_off(self):
        """Like a power failure: nothing in the guest is told."""
        if self.running():
            self.process.kill()
            self.process.wait()

    def status(self):
        """The job's exit status, None if it left none (the guest crashed, or ran out of time)."""
        try:
            return int((self.folder / "share" / f"{self.name}.status").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def output(self):
        qemu = (self.folder / f"{self.name}.qemu").read_text(errors="replace")
        return self.console.read_text(errors="replace") + (f"--- QEMU: {qemu}" if qemu else "")


class Rack:
    """Guests that share a folder and a wire; a context manager that ends all of them at its
    exit.
    """

    def __init__(self, boot):
        self.boot = boot
        self.guests = []
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="larder-rack-"))
        (self.folder / "share").mkdir()
        # A multicast group on the loopback device connects any number of guests and needs neither
        # root nor an order of starting. The group is random, since other racks may run on this
        # machine.
        chance = random.SystemRandom()
        group = f"239.{chance.randrange(256)}.{chance.randrange(256)}.1"
        self.netdev = f"socket,mcast={group}:{free_port()},localaddr=127.0.0.1"

    def __enter__(self):
        end_by_sigterm()
        return self

    def __exit__(self, *_):
        for guest in self.guests:
            guest.power_off()
        for control in self.folder.glob("*.ssh"):
            subprocess.run(["ssh", "-S", control, "-O", "exit", "guest"], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, name, **options):
        number = len(self.guests) + 1
        guest = Guest(name, self.folder, self.boot, netdev=self.netdev, address=f"10.7.0.{number}",
                      **options)
        self.guests.append(guest)
        return guest

    def write(self, name, text):
        (self.folder / "share" / name).write_text(text)

    def hand_over(self, program):
        """Copies a program into the shared folder, and returns where guests find it, wherever it
        lies here.
        """
        shutil.copy(program, self.folder / "share")
        return f"/share/{pathlib.Path(program).name}"

    def start_all(self):
        """Starts all guests and waits until each is up. Emulation hangs once in a hundred boots:
        callers try twice.

        All of them start again, since the others may already wait for the one that did not come up.
        """
        for guest in self.guests:
            guest.power_off()
        for file in (self.folder / "share").glob("*.mark"):
            file.unlink()
        for guest in self.guests:
            guest.start()
        deadline = time.monotonic() + UP_WITHIN_S
        silent = self.guests
        while silent and time.monotonic() < deadline and all(g.cpu_seconds() < UP_WITHIN_CPU_S
                                                             for g in silent):
            time.sleep(0.1)
            silent = [g for g in silent if not g.is_up()]
        for guest in silent:
            print(f"guest {guest.name} did not come up; its console:\n{guest.output()}", flush=True)
        return not silent

    def make_ssh(self):
        """Keys for this rack only, and the path of a configuration in which each guest is known by
        name and by address.
        """
        folder = self.folder / "share" / "ssh"
        folder.mkdir()
        for key in ("key", "host_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rack", "-f", folder / key],
                check=True)
        host_key = (folder / "host_key.pub").read_text().strip()
        (folder / "known_hosts").write_text("".join(f"{g.name},{g.address} {host_key}\n"
                                                    for g in self.guests))
        config = folder / "config"
        # One connection for each guest, kept open: a key exchange costs seconds under emulation.
        config.write_text("".join(f"""Host {g.name} {g.address}
  HostName 127.0.0.1
  Port {g.ssh_port}
  HostKeyAlias {g.name}
""" for g in self.guests) + f"""Host *
  User root
  IdentityFile "{folder}/key"
  IdentitiesOnly yes
  UserKnownHostsFile "{folder}/known_hosts"
  ControlMaster auto
  ControlPath "{self.folder}/%n.ssh"
  ControlPersist 600
  ServerAliveInterval 5
  ServerAliveCountMax 24
  ConnectTimeout 30
  LogLevel ERROR
""")
        return config

    def run_job(self, job, limit_s):
        """Starts all guests, each of which runs the shell script `job` as root. True if all ended
        with status 0.

        Jobs wait for each other through files /share/*.mark, not through the network under test.
        """
        self.write("job", job)
        if not self.start_all():
            self.start_all()
        deadline = time.monotonic() + limit_s
        for guest in self.guests:
            try:
                guest.process.wait(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                print(f"guest {guest.name}: not done after {limit_s} s")
                guest.power_off()
        for guest in self.guests:
            print("\n".join(f"[{guest.name}] {line}" for line in guest.output().splitlines()))
            print(f"[{guest.name}] status {guest.status()}", flush=True)
        return all(guest.status() == 0 for guest in self.guests)


def end_by_sigterm():
    """Makes a time limit's SIGTERM end the program like an exception, so that no guests, processes
    or namespaces are left behind.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
