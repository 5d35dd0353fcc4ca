#!/usr/bin/env python3
"""Mutated manifests into larder-cluster: each is refused in one line, or accepted; none that is
accepted makes an option of ssh or a path outside its folder. A seed makes the same ones each time;
a traceback is a failure.

    test/deploy/manifest_fuzz_test.py --count 20000 --seed 7
"""
import contextlib
import io
import pathlib
import random
import re
import sys
import tempfile
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import ROOT, programs

EXAMPLES = sorted((ROOT / "deploy" / "examples").glob("*.toml"))
# Values where others are expected, and what is special to TOML, ssh, shells and paths.
WORDS = [
    "5", "-1", "1e400", "nan", "true", '""', "[]", "{}", "[[]]", '[""]', "{a = 1}", '"a"',
    "'-oProxyCommand=x'", '"../x"', '"a b"', '"$(id)"', '"\\u0000"', '"\\u001b[2J"', '"a\\nb"',
    '"-x@h"', '"[::1]:70000"', '"h:0"', '"serving"', '"auto"', '"\\U0001F4A9"', "1979-05-27",
    '"' + "a" * 4000 + '"', "[" * 2000, "0x", "\"", "[server]", "[[server]]", "[[server.socket]]",
    "[[server.socket.x]]", "[model]", "[[model]]", "model = 3", "server = 3", "server = [3]",
    "socket = 3", "socket = [3]", 'socket = "x"', "[server.socket]", "name = []", "address = 7",
    "ssh = []", 'ssh = "-oX"', "role = []", "role = {}", "path = 3", "path = []", 'path = "\\u0000"'
]


def mutate(rng, text):
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        what = rng.randrange(9)
        if what == 0:
            del lines[at]
        elif what == 1:
            lines.insert(at, rng.choice(WORDS))
        elif what == 2 and "=" in lines[at]:
            lines[at] = lines[at].split("=")[0] + "= " + rng.choice(WORDS)
        elif what == 3:
            lines.insert(at, lines[rng.randrange(len(lines))])
        elif what == 4:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif what == 5 and lines[at]:
            i = rng.randrange(len(lines[at]))
            lines[at] = lines[at][:i] + chr(
                rng.choice([0, 10, 27, 34, 39, 45, 61, 91, 93, 0x2028, 0xFFFD,
                            rng.randrange(256)])) + lines[at][i + 1:]
        elif what == 6:
            i = rng.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:i] + rng.choice(WORDS) + lines[at][i:]
        elif what == 7:
            lines = lines[:at]
        elif what == 8:
            key = rng.choice([
                "name", "address", "ssh", "role", "socket", "path", "server", "model", "options",
                "port"
            ])
            lines.insert(at, f"{key} = {rng.choice(WORDS)}")
        text = "\n".join(lines) or " "
    return text


class Servers:
    """Checks the commands that would be run on the servers; nothing is run."""

    def __init__(self, cluster):
        self.cluster, self.wrong = cluster, []

    def run(self, server, script, *arguments, stdin=None):
        command = server.command(script, *arguments)
        if "--" in command and command[0] == "ssh":
            options, target, *rest = command[:command.index("--")], *command[command.index("--") +
                                                                             1:]
            if target.startswith("-") or not re.fullmatch(r"[A-Za-z0-9_.:%@-]+",
                                                          target) or len(rest) != 1:
                self.wrong.append(f"ssh would be called with {command[:12]}")
            if any("\0" in word or "\n" in word for word in options):
                self.wrong.append(f"options of ssh: {options}")
        for word in arguments:
            # A name of the manifest must be one component of a path.
            if ".." in str(word).split("/") or "\n" in str(word) or "\0" in str(word):
                self.wrong.append(f"an argument of a script on a server: {word!r}")
        raise self.cluster.Failed("this is a test")


def main():
    parser = programs.parser(__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    cluster, rng = programs.load(ROOT / "deploy" / "larder-cluster"), random.Random(o.seed)
    servers = Servers(cluster)
    cluster.Server.run = lambda self, script, *arguments, stdin=None: servers.run(
        self, script, *arguments, stdin=stdin)
    statuses, failures = {}, []
    with tempfile.TemporaryDirectory(prefix="larder-fuzz-") as folder:
        manifest = pathlib.Path(folder, "cluster.toml")
        model = pathlib.Path(folder, "model.gguf")
        model.write_bytes(b"GGUF")
        texts = [path.read_text() for path in EXAMPLES]
        for i in range(o.count):
            text = mutate(rng, rng.choice(texts))
            data = text.encode("utf-8", "surrogatepass") if rng.random() < 0.9 else text.encode(
                "latin-1", "replace")
            manifest.write_bytes(data)
            # With its own model, so that a wrong path in the manifest does not end each run.
            command = ["check", "--manifest", str(manifest)] + (
                ["-m", str(model)] if rng.random() < 0.7 else []
            )
            said = io.StringIO()
            try:
                with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                    status = cluster.main(command)
            except BaseException:  # SystemExit too: only main() knows its exit codes
                failures.append((data, traceback.format_exc()))
                continue
            statuses[status] = statuses.get(status, 0) + 1
            if status == 2 and (
                said.getvalue().count("\n") != 1
                or not said.getvalue().startswith("larder-cluster: ")
            ):
                failures.append((data, f"refused otherwise than in one line: {said.getvalue()!r}"))
            if servers.wrong:
                failures.append((data, servers.wrong.pop()))
                servers.wrong.clear()
    print(f"{o.count} manifests, seed {o.seed}: {statuses.get(2, 0)} refused, "
          f"{sum(n for s, n in statuses.items() if s != 2)} taken, {len(failures)} failures")
    for data, why in failures[:5]:
        print(f"--- {data[:1500]!r}\n{why}")
    # A fuzzer whose inputs are all refused would find nothing.
    reached = statuses.get(
        2, 0) > o.count // 20 and sum(statuses.values()) - statuses.get(2, 0) > o.count // 20
    sys.exit(1 if failures or not reached else 0)


if __name__ == "__main__":
    main()
