#!/usr/bin/env python3
"""The tests of the rooms that look at the machine, as they would run on other ones: no expectation
may hold only here.

    test/checks/machines_test.py --build build [--all] [--only ROOM...]

Packages, caches, cores and nodes are described to hwloc (HWLOC_SYNTHETIC), the caches of a core and
the instruction sets to the kernels (LARDER_TEST_CPU); a set that this CPU does not have is left
out. --all: every unit test program, for some hours; --only: these.
"""
import dataclasses
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import programs

LIMIT_S = 900  # of one program
# The rooms whose code, or whose tests, ask what the machine is, and whose tests take seconds.
ROOMS = [
    "topology", "threadpool", "kernels/formats", "kernels/rows", "kernels/recurrent",
    "pipeline/plan", "pipeline/stage", "pipeline/manifest", "node/options", "node/tasks"
]


@dataclasses.dataclass(frozen=True)
class Machine:
    name: str
    topology: str  # as for `lstopo --input`
    isa: str  # the best set; "" for what there is
    cpu: str  # LARDER_TEST_CPU without it


MACHINES = [
    Machine("a virtual machine of one core that tells nothing of its caches",
            "package:1 [numa(memory=2GiB)] core:1 pu:1", "scalar", "l1=0 l2=0"),
    Machine("a desktop: AVX2, or AVX-512 without VNNI",
            "package:1 [numa(memory=16GiB)] l3:1(size=8MiB) l2:4(size=256KiB) core:1 pu:2", "avx2",
            "l1=32768 l2=262144"),
    Machine("efficient cores: AVX-VNNI, no L3",
            "package:1 [numa(memory=64GiB)] l2:8(size=1280KiB) core:1 pu:1", "avx-vnni",
            "l1=32768 l2=1310720"),
    Machine("two Zen 4: vector units in halves, eight L3 groups each",
            "package:2 numa:4(memory=64GiB) l3:2(size=32MiB) l2:8(size=1MiB) core:1 pu:2",
            "avx512-vnni", "l1=32768 l2=1048576 vector=32"),
    Machine("two Xeons of the Rapids: 2 MB of L2, AMX, one L3 of 480 MB each",
            "package:2 [numa(memory=256GiB)] l3:1(size=480MiB) l2:64(size=2MiB) core:1 pu:2",
            "avx512-vnni", "l1=49152 l2=2097152 vector=64"),
]
FLAGS = {"scalar": [], "avx2": ["avx2", "fma", "f16c"], "avx-vnni": ["avx2", "avx_vnni"],
         "avx512-vnni": ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"]}


def flags_here():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii",
                                                        errors="replace").splitlines():
        if line.startswith("flags"):
            return set(line.split(":")[1].split())
    return set()


def environment_of(machine, flags):
    has = set(FLAGS[machine.isa]) <= flags
    return {**os.environ, "HWLOC_SYNTHETIC": machine.topology, "HWLOC_THISSYSTEM": "0",
            "LARDER_TEST_CPU": f"isa={machine.isa} {machine.cpu}" if has else machine.cpu}


def failures(program, machine, flags):
    """The lines of a program's failed tests; [] if it passed."""
    done = subprocess.run([program, "--gtest_brief=1"], env=environment_of(machine, flags),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", timeout=LIMIT_S, check=False)
    if done.returncode == 0:
        return []
    return [line for line in done.stdout.splitlines() if line.startswith("[  FAILED  ]")] or [
        f"exit status {done.returncode}: {done.stderr[-500:]}"
    ]


def programs_of(options):
    build = pathlib.Path(options.build)
    if options.all:
        found = sorted(path for path in build.glob("*/**/*_test")
                       if path.is_file() and os.access(path, os.X_OK))
    else:
        found = [build / room / f"{room.replace('/', '_')}_test" for room in options.only or ROOMS]
    missing = [path for path in found if not path.exists()]
    if missing or not found:
        programs.skip(f"not built: {', '.join(map(str, missing or [build]))}")
    return found


def main():
    parser = programs.parser(__doc__, "build")
    parser.add_argument("--all", action="store_true", help="every unit test program")
    parser.add_argument("--only", nargs="+", default=[], metavar="ROOM",
                        help="the tests of these rooms")
    options = parser.parse_args()
    flags = flags_here()
    failed = 0
    for program in programs_of(options):
        for machine in MACHINES:
            begin = time.monotonic()
            lines = failures(program, machine, flags)
            print(
                f"{program.name}: {machine.name}: {'failed' if lines else 'passed'},"
                f" {time.monotonic() - begin:.0f} s", flush=True,
            )
            print("".join(f"  {line}\n" for line in lines), end="", flush=True)
            failed += bool(lines)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
