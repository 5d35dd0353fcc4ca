#!/usr/bin/env python3
"""Runs tests of programs in a guest that has what this machine may lack.

    test/rack/guest_tests.py verbs --program build/rdma/link/rdma_link_test --filter '*Verbs*' \\
        --cache build/rack
    test/rack/guest_tests.py numa --program build/pipeline/engine/pipeline_engine_test \\
        --filter 'EngineHomes*' --cache build/rack

verbs: two RDMA devices (soft-RoCE; containers have none). numa: two packages of two cores, each a
NUMA node. --program and --filter may be given several times, a filter for each program.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import guest
import image
from larder_testing import programs

MACHINES = {"verbs": {"cores": 2, "memory_mib": 1024},
            "numa": {"sockets": 2, "cores": 2, "memory_mib": 1536}}
PREPARE = {"verbs": """
rdma link add rxe0 type rxe netdev eth0 || exit 1
# a second device, whose MTU is smaller
ip link set dummy0 mtu 1500 up && ip addr add 10.8.0.1/24 dev dummy0 && rdma link add rxe1 type rxe netdev dummy0 || exit 1
# control groups, by which a test has a registration refused
mount -t cgroup2 none /sys/fs/cgroup || exit 1
""", "numa": ""}
TESTS = """
{program} --gtest_filter='{filter}' --gtest_brief=1 --gtest_output=json:/share/{result} || status=1
"""


def main():
    parser = programs.parser(__doc__, "cache")
    parser.add_argument("machine", choices=MACHINES)
    parser.add_argument("--program", required=True, action="append", help="a GoogleTest program")
    parser.add_argument("--filter", required=True, action="append",
                        help="of its tests, as --gtest_filter")
    parser.add_argument("--limit", type=int, default=480, help="seconds that the tests may take")
    o = parser.parse_args()
    try:
        boot = image.boot_files(image.cache_folder(o.cache))
    except image.Missing as missing:
        programs.skip(missing)
    with guest.Rack(boot) as rack:
        rack.add(o.machine, **MACHINES[o.machine])
        results = [f"result{i}.json" for i in range(len(o.program))]
        job = PREPARE[o.machine] + "\ncd /tmp\nstatus=0\n" + "".join(
            TESTS.format(program=rack.hand_over(program), filter=wanted, result=result)
            for program, wanted, result in zip(o.program, o.filter, results, strict=True)
        ) + "exit $status\n"
        passed = rack.run_job(job, o.limit)
        files = [rack.folder / "share" / result for result in results]
        found = [json.loads(file.read_text())["testsuites"] if file.exists() else []
                 for file in files]
    for program, suites in zip(o.program, found):
        tests = [test for suite in suites for test in suite["testsuite"]]
        ran = [test for test in tests if test["result"] == "COMPLETED"]
        skipped = [test["name"] for test in tests if test["result"] == "SKIPPED"]
        print(f"{pathlib.Path(program).name}: {len(ran)} tests ran in the guest, {len(skipped)} "
              "skipped")
        # A guest without a device, or a filter that matches no test, must not look like success.
        passed = passed and ran and not skipped
    if not passed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
