#!/usr/bin/env python3
"""Breaks a running cluster repeatedly, in the ways that racks break, and checks its promises:

- the cluster says which socket is affected, and why, within 5 seconds;
- a running request goes on where it was as soon as the unit is back, and its text is one process's
  to the last byte. It ends with an
  error only if the serving socket itself is gone, or the unit stays away for longer than requests
  are patient (5 s; every other fault that lasts is undone at once, every other one lasts that
  long);
- while a fault lasts, /health says 503 and requests are refused after 5 seconds;
- when the unit is back, the cluster serves again by itself.

    test/rack/faults.py --larder build/larder --model model/demo/larder-stories.gguf --count 100
        # namespaces, TCP
    test/rack/faults.py --guests --build build --cache build/rack --model ... --count 20
        # guests, verbs

Prints a table; exit status 1 if a promise was broken.
"""
import dataclasses
import os
import pathlib
import random
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import cluster
import image
from larder_testing import programs, story

REPORTED_WITHIN_S = 5.0
DRAINED_WITHIN_S = 30.0  # as `larder serve --drain-timeout`
TROUBLE = re.compile(
    r"gone|not answered|lost|down|closed|silent|fault|refused|error|restart|killed|signal",
    re.IGNORECASE)


@dataclasses.dataclass
class Kind:
    """How a fault is made and undone, with make(server, socket) and undo(server, socket), and its
    expected effects.
    """
    make: object
    undo: object = lambda server, socket: None
    whole_server: bool = False  # the report may name any socket of the server
    # A fault of a link between servers: the report may name a socket of either server
    both_ends: bool = False
    breaks: bool = True         # the chain is lost, which is reported; else it may hold
    kills: bool = False         # processes end: a request ends with its serving socket
    lasts: bool = False         # until it is undone the cluster does not serve
    drains: bool = False        # a serving socket first finishes its requests


@dataclasses.dataclass
class Row:
    count: int = 0
    went_on: int = 0
    patience_over: int = 0      # ended with an error, since the unit stayed away
    serving_gone: int = 0       # ended, since the serving socket did
    reported_s: float = 0.0
    recovered_s: float = 0.0
    broken: int = 0


def stutter(server, socket):
    """A slow stage: it is stopped for four fifths of every two seconds."""
    for _ in range(10):
        server.freeze(socket)
        time.sleep(0.16)
        server.thaw(socket)
        time.sleep(0.04)


def lose_packets(server, _socket):
    server.lose(2)
    time.sleep(3)


KINDS = {
    "kill -9 of a socket": Kind(lambda server, socket: server.kill(socket), kills=True),
    "socket restarted": Kind(lambda server, socket: server.restart(socket), drains=True),
    "socket stands still": Kind(lambda server, socket: server.freeze(socket),
                                lambda server, socket: server.thaw(socket), lasts=True),
    "slow stage": Kind(stutter, breaks=False),
    "link cut": Kind(lambda server, _: server.cut(), lambda server, _: server.mend(),
                     whole_server=True, lasts=True),
    "data flow lost": Kind(lambda server, _: server.lose_data(),
                           lambda server, _: server.find_data(), both_ends=True),
    "server powered off": Kind(lambda server, _: server.power_off(),
                               lambda server, _: server.power_on(), whole_server=True, kills=True,
                               lasts=True),
    "2 % of packets lost": Kind(lose_packets, lambda server, _: server.lose(0), breaks=False),
}


class Faults:
    def __init__(self, rack, expected, options):
        self.rack, self.expected, self.options = rack, expected, options
        self.chance = random.Random(options.seed)
        self.rows = {}
        self.failures = []

    def wrong(self, what, request=None):
        self.failures.append(what)
        print(f"BROKEN: {what}", flush=True)
        if request is not None:
            print("--- the request said:\n" + request.err()[-600:])
        for name, text in self.rack.new_logs().items():
            print(f"--- {name} said:\n" + text[-800:])

    def is_prefix(self, text):
        # The last character may be incomplete: a token may have ended within its bytes.
        return self.expected.startswith(text.rstrip("\ufffd"))

    def recover(self, limit_s):
        """Seconds until a whole short request gave the right text; None if none did."""
        started = time.monotonic()
        while time.monotonic() - started < limit_s:
            request = self.rack.request(self.options.short)
            status, text = request.wait(limit_s), request.text()
            request.kill()
            if not self.is_prefix(text):
                self.wrong(f"after a fault: text that differs: {text!r}", request)
                return None
            if status == 0 and len(text) > len(story.PROMPT):
                return time.monotonic() - started
            time.sleep(0.3)
        self.wrong(f"no request succeeded within {limit_s} s after the unit was back", request)
        return None

    def report_of(self, names, victim):
        """A line of the log of a socket other than the victim that names one of `names` and says
        what is wrong; None if there is none yet.
        """
        for source, text in self.rack.new_logs().items():
            if source == victim:
                continue
            for line in text.splitlines():
                for name in names:
                    # A journal's entry has the name as a field, for those who search it.
                    said = f"LARDER_PEER={name}." in line if self.rack.journal else re.search(
                        rf"\b{re.escape(name)}\b", line)
                    if said and TROUBLE.search(line):
                        return f"{source}: {line.strip()}"
        return None

    def while_it_lasts(self, name, limit_s):
        """Checks that a cluster without a socket reports it, and refuses requests after its
        patience of 5 s. False if it does not.
        """
        started = time.monotonic()
        while self.rack.health().startswith("200"):
            if time.monotonic() - started > limit_s:
                self.wrong(f"{name}: /health says 200 for {limit_s} s")
                return False
            time.sleep(0.2)
        request = self.rack.request(self.options.short)
        status = request.wait(2 * REPORTED_WITHIN_S + self.options.slack)
        said = request.err()
        request.kill()
        # If the serving socket itself is stopped or has no power, nothing answers.
        if status is None and self.rack.health():
            self.wrong(
                f"{name}: a request waits for more than"
                f" {2 * REPORTED_WITHIN_S + self.options.slack} s", request,
            )
            return False
        if status == 0 or (status is not None and "HTTP" in said and "HTTP 503" not in said):
            self.wrong(f"{name}: a request that can't be served ended with {status}: {said}",
                       request)
            return False
        return True

    def order(self, kinds, count):
        """(kind, role of the victim) of each fault. Every pair comes once before any comes again; a
        whole server has no role.
        """
        pairs = [
            (name, role) for name in kinds
            for role in ([None] if KINDS[name].whole_server else [*cluster.ROLES, cluster.SERVING])
        ]
        drawn = []
        while len(drawn) < count:
            self.chance.shuffle(pairs)
            drawn += pairs
        return drawn[:count]

    def victim(self, role):
        """A server, and its socket of this role; any socket if the rack has none with that role."""
        found = [(server, socket) for server in self.rack.servers.values()
                 for socket in server.names()
                 if role is None or socket == role or socket.endswith(f"-{role}")]
        return self.chance.choice(found or [(server, socket)
                                            for server in self.rack.servers.values()
                                            for socket in server.names()])

    def once(self, name, role=None):
        kind, row = KINDS[name], self.rows.setdefault(name, Row())
        server, socket = self.victim(role)
        request = self.rack.request(self.options.long)
        begun = time.monotonic()
        while request.running() and len(request.text()) <= len(
                story.PROMPT) and time.monotonic() - begun < 60:
            time.sleep(0.02)
        time.sleep(self.chance.uniform(0, self.options.moment))
        if not request.running():
            self.wrong(f"{name}: the request ended before the fault", request)
            return
        self.rack.mark_logs()
        row.count += 1
        at = time.monotonic()
        kind.make(server, socket)
        names = server.names() if kind.whole_server else [socket]
        if kind.both_ends:
            names = [name for each in self.rack.servers.values() for name in each.names()]
        report, reported_s, limit_s = None, None, REPORTED_WITHIN_S + self.options.slack
        serving = socket == cluster.SERVING or (
            kind.whole_server and cluster.SERVING in server.names()
        )
        drains = kind.drains and socket == cluster.SERVING
        stays = kind.lasts and row.count % 2 == 0  # for longer than requests are patient
        if drains:
            request.wait(DRAINED_WITHIN_S + self.options.slack)
            if request.running() or (
                request.status() != 0 and "shutting down" not in request.err()
            ):
                self.broken(
                    row, f"{name} {socket}: the request"
                    f" {'still runs' if request.running() else 'was not drained'}", request,
                )
        elif kind.breaks:
            while time.monotonic() - at < limit_s and report is None:
                report = self.report_of(names,
                                        None if kind.whole_server or kind.both_ends else socket)
                reported_s = report and time.monotonic() - at
                time.sleep(0.05)
            if report is None:
                self.broken(
                    row, f"{name} {socket}: nobody named {' or '.join(names)} within {limit_s} s",
                    request)
            else:
                row.reported_s = max(row.reported_s, reported_s)
        if stays and not self.while_it_lasts(name, limit_s):
            row.broken += 1
        kind.undo(server, socket)
        how = self.end_of(request, f"{name} {server.name if kind.whole_server else socket}", row,
                          gone=serving and (kind.kills or drains), away=stays)
        seconds = self.recover(self.options.recover)
        if seconds is None:
            row.broken += 1
        else:
            row.recovered_s = max(row.recovered_s, seconds)
        print(
            f"{sum(r.count for r in self.rows.values()):4} {name}: "
            f"{server.name if kind.whole_server else socket}; {how}, "
            f"{f'reported after {reported_s:.2f} s' if reported_s else 'no report'}, recovered"
            f" after {seconds or -1:.1f} s; {report or ''}", flush=True,
        )

    def broken(self, row, what, request):
        self.wrong(what, request)
        row.broken += 1

    def end_of(self, request, name, row, gone, away):
        """Waits for the end of a request, and says what it was. gone: its serving socket ended;
        away: patience was over.
        """
        status = request.wait(self.options.recover + self.options.whole)
        text, said = request.text(), request.err()
        if not self.is_prefix(text):
            self.broken(row, f"{name}: text that differs: {text[-200:]!r}", request)
        elif status is None:
            self.broken(row, f"{name}: the request still runs", request)
        elif status == 0 and text.rstrip("\n") != self.expected.rstrip("\n"):
            self.broken(
                row, f"{name}: the request ended as if it were whole after {len(text)} of"
                f" {len(self.expected)} characters", request,
            )
        elif status != 0 and not (gone or away):
            self.broken(row, f"{name}: the request ended with an error: {said.strip()}", request)
        request.kill()
        if status == 0:
            row.went_on += 1
            return "went on"
        row.serving_gone += gone
        row.patience_over += away and not gone
        return "ended with its serving socket" if gone else f"ended with an error: {said.strip()}"

    def markdown(self):
        """The table of test/rack/README.md."""
        lines = [("| fault | times | request went on to its end | ended: patience over | ended: "
                  "serving socket gone | socket named after, worst | served again after, worst |"),
                 "|---|--:|--:|--:|--:|--:|--:|", ]
        for name, row in self.rows.items():
            lines.append(
                f"| {name} | {row.count} | {row.went_on} | {row.patience_over} | "
                f"{row.serving_gone} | {f'{row.reported_s:.2f} s' if row.reported_s else '-'} | "
                f"{row.recovered_s:.1f} s |")
        return ("\n".join(lines) +
                f"\n\n{sum(row.count for row in self.rows.values())} faults, {len(self.failures)}"
                " broken promises.\n")

    def table(self):
        print(f"\n{'fault':24}{'times':>6}{'went on':>9}{'patience':>10}{'serving':>9}"
              f"{'reported, worst':>17}{'recovered, worst':>18}{'broken':>8}")
        for name, row in self.rows.items():
            reported = f"{row.reported_s:.2f} s" if row.reported_s else "-"
            print(f"{name:24}{row.count:6}{row.went_on:9}{row.patience_over:10}"
                  f"{row.serving_gone:9}{reported:>17}{row.recovered_s:>15.1f} s{row.broken:8}")
        total = sum(row.count for row in self.rows.values())
        print(f"{total} faults, {len(self.failures)} broken promises")


def main():
    parser = programs.parser(__doc__, "model")
    parser.add_argument("--larder", help="the program, for namespaces")
    parser.add_argument("--guests", action="store_true",
                        help="guests instead of namespaces: adds lost packets, and real power")
    parser.add_argument("--build", help="build folder, for guests")
    parser.add_argument("--cache", help="folder for what guests boot")
    parser.add_argument("--transport", default="verbs", choices=["verbs", "tcp"],
                        help="between guests")
    parser.add_argument("--attention-server", action="store_true",
                        help="all attention sockets on a third server (namespaces)")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("RACK_SEED", 1)))
    parser.add_argument(
        "--slack", type=float,
        help="seconds beyond the promised 5 on a machine that others use (default: 0; in guests 10)"
    )
    parser.add_argument("--only", help="kinds of faults, by a word of each, with commas")
    parser.add_argument("--table", metavar="FILE",
                        help="write the table to FILE as Markdown too, after each fault")
    o = parser.parse_args()
    kinds = [
        name for name in KINDS
        if (name not in ("2 % of packets lost", "data flow lost") or o.guests ==
            ("packets" in name)) and (not o.only or any(w in name for w in o.only.split(",")))
    ]
    model = str(pathlib.Path(o.model).resolve())
    # Guests are a hundred times slower, and everything about them is late.
    o.short, o.long, o.moment, slack, o.recover, o.whole = (16, 500, 1.0, 10.0, 180,
                                                            300) if o.guests else (16, 8000, 0.5,
                                                                                   0.0, 60, 60)
    o.slack = slack if o.slack is None else o.slack
    context = 512 if o.guests else 8192
    try:
        if o.guests:
            import guest_cluster
            larder = str(pathlib.Path(o.build, "larder").resolve())
            rack = guest_cluster.GuestCluster("ab", larder, model, o.build, o.cache, o.transport)
        else:
            import netns
            larder = str(pathlib.Path(o.larder).resolve())
            rack = netns.NetCluster(["a", "b"], larder, model, context,
                                    attention="k" if o.attention_server else None)
    except image.Missing as missing:
        programs.skip(missing)
    with rack:
        faults = Faults(rack, cluster.truth(larder, model, o.long, context), o)
        rack.bring_up()
        if faults.recover(180) is None:
            raise SystemExit("the cluster does not work before any fault")
        for name, role in faults.order(kinds, o.count):
            faults.once(name, role)
            if o.table:
                pathlib.Path(o.table).write_text(faults.markdown())
            if len(faults.failures) >= 5:
                print("five broken promises: giving up")
                break
        faults.table()
    sys.exit(1 if faults.failures else 0)


if __name__ == "__main__":
    main()
