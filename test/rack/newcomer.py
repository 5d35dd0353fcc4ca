#!/usr/bin/env python3
"""Follows docs/cluster.md to the letter, from its section 2 on, in two fresh guests: runs its
commands as written, in their order.

    test/rack/newcomer.py --build build --model model/demo/larder-stories.gguf --cache build/rack

It fills in only what a reader has to fill in: the servers' addresses, the path of the package, a
model, and the operator's machine (this one: ssh finds the guests through a configuration). It fails
if a command ends with an error, a block is missing, or a text differs from that of one process.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import cluster
import guest_cluster
import image
from larder_testing import ROOT, programs, story
from larder_testing.programs import executable
from larder_testing.replies import joined, texts_of_events

TEXT = ROOT / "docs" / "cluster.md"
WORDS_ADDRESS, RACK_ADDRESS = "10.0.0.", "10.7.0."
# The document says where they run
ON_A_SERVER = ("larder status", "systemctl ", "journalctl ", "apt-get ")
FOLLOW, ONCE = r" -f\b", " -n 20"  # a reader would end it by Ctrl-C


def sections(text):
    """Number of a section -> its indented blocks, each a list of lines."""
    found = {}
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        number = re.match(r"(\d+)\. ", section)
        blocks, block = [], []
        for line in section.splitlines() + [""]:
            if line.startswith("    ") or (block and not line):
                block.append(line[4:])
            elif block:
                blocks.append(block)
                block = []
        if block:
            blocks.append(block)
        if number:
            found[int(number[1])] = [("\n".join(b)).strip("\n") for b in blocks]
    return found


def manifest_of(blocks):
    """The two TOML blocks of section 3: the second goes below a-attention."""
    whole, front = [b for b in blocks if "[[server.socket]]" in b]
    before, after = whole.split('\n[[server]]\nname = "node-b"')
    return f'{before}\n{front}\n\n[[server]]\nname = "node-b"{after}\n'


def commands(block):
    """Its commands: lines, joined where they end with a backslash, without comments."""
    for line in block.replace("\\\n", " ").splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if line:
            yield line


class Reader:
    def __init__(self, rack, folder):
        self.rack, self.folder = rack, folder
        tools = folder / "bin"
        tools.mkdir()
        for tool in ("ssh", "scp"):
            executable(tools / tool, f'#!/bin/sh\nexec /usr/bin/{tool} -F {rack.config} "$@"\n')
        if not shutil.which("nc"):
            image.require("busybox")
            (tools / "nc").symlink_to(shutil.which("busybox"))
        (tools / "larder").symlink_to(rack.larder)
        (tools / "larder-cluster").symlink_to(guest_cluster.LARDER_CLUSTER)
        self.environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def do(self, command):
        """Runs a command, on its server if it is for one, and returns its output."""
        command = command.replace(WORDS_ADDRESS, RACK_ADDRESS)
        command = re.sub(FOLLOW, ONCE, command)
        for port, here in self.rack.first.machine.ports.items():
            command = re.sub(rf"{re.escape(RACK_ADDRESS)}1[: ]{port}\b",
                             lambda found, here=here: f"127.0.0.1{found[0][-5]}{here}", command)
        if command.startswith(ON_A_SERVER):
            command = f"ssh root@{RACK_ADDRESS}1 '{command}'"
        self.rack.say(f"$ {command}")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            # separately: curl's progress would be mixed into the output
            text=True,
            timeout=600)
        print((done.stdout + done.stderr).rstrip(), flush=True)
        if done.returncode:
            raise SystemExit(f"docs/cluster.md: `{command}` ended with {done.returncode}")
        return done.stdout


def completion(answer):
    return joined(texts_of_events(answer.encode().split(b"\n")))


def follow(rack, reader, model, expected):
    steps = sections(TEXT.read_text())
    # 2: install
    package = next((rack.rack.folder / "package").glob("larder_*.deb"))
    (reader.folder / "build").mkdir()
    (reader.folder / "build" / package.name).write_bytes(package.read_bytes())
    install, doctor = steps[2]
    for server in ("1", "2"):
        for command in commands(install):
            reader.do(command.replace(f"{WORDS_ADDRESS}1", f"{WORDS_ADDRESS}{server}"))
    for command in commands(doctor):
        reader.do(command)
    # 3: the manifest
    (reader.folder / "cluster.toml").write_text(
        manifest_of(steps[3]).replace(WORDS_ADDRESS, RACK_ADDRESS))
    (reader.folder / "model.gguf").write_bytes(pathlib.Path(model).read_bytes())
    # 4, 5, 6, 7
    for command in commands(steps[4][0]):
        reader.do(command)
    curl, text_stream = commands(steps[5][0])
    said = story.PROMPT + completion(reader.do(curl))
    if not expected.startswith(said) or len(said) < len(story.PROMPT) + 50:
        raise SystemExit(f"the answer is not the one process's:\n{said}\n{expected}")
    if story.PROMPT + reader.do(text_stream) == story.PROMPT:
        raise SystemExit("the text stream is empty")
    for command in commands(steps[6][0]):
        reader.do(command)
    for command in commands(steps[7][0]):
        reader.do(command)


def main():
    o = programs.parser(__doc__, "build", "model", "cache").parse_args()
    larder = str(pathlib.Path(o.build, "larder").resolve())
    expected = cluster.truth(larder, o.model, 120, 512)
    try:
        rack = guest_cluster.GuestCluster("ab", larder, o.model, o.build, o.cache, "tcp")
    except image.Missing as missing:
        programs.skip(missing)
    with rack:
        rack.start_guests()
        folder = rack.rack.folder / "reader"
        folder.mkdir()
        follow(rack, Reader(rack, folder), o.model, expected)
        for server in rack.servers.values():
            left = server.ssh(
                "pgrep -x larder || true; dpkg-query -W -f '${Status}' larder 2>/dev/null || true"
            ).strip()
            # The document purges one, as an example
            if left and not (server is not rack.first and left == "install ok installed"):
                raise SystemExit(f"{server.name}: left after the last line: {left}")
        rack.say("docs/cluster.md leads where it says")


if __name__ == "__main__":
    main()
