#!/usr/bin/env python3
"""Two guests exchange frames through verbs links over soft-RoCE: frames of both directions arrive,
and both programs end.

    test/rack/verbs_pair.py --program build/bench/bench_link --cache build/rack [--perftest]

What it prints is the link's half round trip under emulation, which says nothing about real
adapters. With --perftest it is compared with perftest's programs in the same guests, sleeping and
polling (bench/link_against_perftest, 2 to 5 minutes). As root the emulator's threads then get
priority over other programs, since two polling guests leave no core to the virtual wire.
"""
import os
import pathlib
import shutil
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import guest
import image
from larder_testing import ROOT, programs

TOGETHER = """
rdma link add rxe0 type rxe netdev eth0 || exit 1
: >/share/$GUEST.mark
until [ -e /share/server.mark ] && [ -e /share/client.mark ]; do sleep 0.1; done
"""
JOB = TOGETHER + """
{program} verbs-$GUEST --host 10.7.0.1 --port 7431 --sleep --rounds 50 --repetitions 3
"""
PERFTEST = TOGETHER + """
cd /tmp
{script} --sleep --$GUEST {program} 10.7.0.1 rxe0 {rounds} {repetitions} && {script} --$GUEST {program} 10.7.0.1 rxe0 {rounds} {repetitions}
"""
SCRIPT = ROOT / "bench" / "link_against_perftest"


def prefer(guests):
    """Gives the threads that emulate CPUs priority over other programs, and a higher one to the
    thread that moves packets.
    """
    while not all(g.running() and g.is_up() for g in guests):
        time.sleep(0.5)
    for g in guests:
        for thread in os.listdir(f"/proc/{g.process.pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), -15)
        os.sched_setscheduler(g.process.pid, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK,
                              os.sched_param(1))


def main():
    parser = programs.parser(__doc__, "cache")
    parser.add_argument("--program", required=True, help="bench_link")
    parser.add_argument("--perftest", action="store_true", help="compare with perftest")
    parser.add_argument("--rounds", type=int, default=300, help="round trips of a run")
    parser.add_argument("--repetitions", type=int, default=5, help="runs of each program, in turn")
    o = parser.parse_args()
    if o.perftest and not shutil.which("ib_send_lat"):
        programs.skip("ib_send_lat is not installed (package perftest)")
    try:
        boot = image.boot_files(image.cache_folder(o.cache))
    except image.Missing as missing:
        programs.skip(missing)
    with guest.Rack(boot) as rack:
        guests = [rack.add("server"), rack.add("client")]
        program = rack.hand_over(o.program)
        if o.perftest:
            if os.geteuid() == 0:
                threading.Thread(target=prefer, args=(guests,), daemon=True).start()
            job = PERFTEST.format(script=rack.hand_over(SCRIPT), program=program, rounds=o.rounds,
                                  repetitions=o.repetitions)
            passed = rack.run_job(
                job, 1200) and guests[1].said("ratio") and not guests[1].said("ratio none")
        else:
            passed = rack.run_job(JOB.format(program=program),
                                  240) and guests[1].said("half round trip")
    if not passed:
        raise SystemExit("the guests did not talk to each other")


if __name__ == "__main__":
    main()
