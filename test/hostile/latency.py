#!/usr/bin/env python3
"""What costly requests cost the other clients of `larder serve`: nothing that they notice.

    test/hostile/latency.py --larder build/larder --model model/demo/larder-stories.gguf

Each field of each route that takes a schema, a grammar, a pattern or JSON gets an input that costs
far more than its bytes if the server lets it (larder_testing/costly_inputs.py), and each of these
inputs goes into some field. What is judged:

- exactly, with nobody else there: the CPU of the I/O thread, which sends everybody's tokens; the
  CPU of the threads that work beside it,
  which everybody's large requests wait for; the most memory, and what is left when the client has
  gone. The kernel counts these, so that a busy machine does not change them.
- how long others wait (bystanders.py), beside the same in a control: a process of the background's
  nice value that is never idle. An
  input that makes one of them wait for MOST_WAIT_S more than in the control is tried again, ROUNDS
  times in all; a server at fault is late each time, a busy machine is not.

No input is sent twice: compiled grammars are kept. --list: goes on after a failure, tries
everything once, and prints all failures.
"""
import dataclasses
import json
import os
import pathlib
import socket
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from bystanders import SPAWN, Bystanders
from larder_testing import batches, costly_inputs, programs, scripted_model, threads
from larder_testing.costly_inputs import FIELDS, SHAPES, WHOLE
from larder_testing.replies import split_reply
from larder_testing.server import Server

MOST_WAIT_S = 0.050  # of another client, by a request of any kind
MOST_IO_S = 0.050  # CPU of the I/O thread for a request
# CPU of the threads beside it, for a request of a megabyte: reading it, and what its grammar may
# cost
MOST_BESIDE_S = 1.0
MOST_BYTES = 192 << 20  # that a request makes the process larger by, while it is there
MOST_LEFT = 96 << 20  # and that all of them leave: grammars that are kept
ROUNDS = 5
PATIENCE_S = 2.0  # of the attacker, who then leaves
SETTLED_S = 0.03  # the threads beside it wait for work: the request is over
# That others are watched for when the answer has come, and when the work may go on without the
# attacker
ANSWERED_S, GOES_ON_S = 0.05, 0.7
CONTROL_S = 0.25
BACKGROUND_NICE = 15  # as serving/admission/background.cc has it
IO, BESIDE = "larder-io", ("larder-prepare", "larder-masks", "larder-files")
OPTIONS = [
    "-t", "1", "--parallel", "6", "-c", "32768", "--chat-template", "qwen3", "--tool-parser",
    "qwen3_coder"
]

# What a search and a review found to be the worst, by kind; each goes into some field. (shape,
# bytes)
WORST = {
    "schema": [("deep_arrays", 400_000), ("long_name", 60_000), ("copying_references", 60_000),
               ("enum_times_enum_of_references", 6_900), ("deep_objects", 900_000),
               ("enum_times_enum", 700_000), ("type_times_enum", 500_000),
               ("all_of_many", 300_000), ("references_to_many_properties", 500_000),
               ("long_name_over_any_of", 700_000), ("required_times_required", 700_000),
               ("required_times_reference", 60_000), ("many_keywords_beside_any_of", 60_000),
               ("many_keywords_beside_an_enum", 500_000), ("many_fields", 700_000),
               ("type_times_type", 600_000), ("required_times_additional", 60_000),
               ("any_of_times_any_of", 500_000), ("references_by_the_dozen", 7_000),
               ("many_names", 500_000), ("deep_examples", 400_000), ("formats", 60_000)],
    "grammar": [("chain_of_rules", 60_000), ("chain_of_rules", 500_000),
                ("repeats_of_a_large_class", 60_000), ("rules_that_are_copied", 86_000),
                ("nested_repeats", 1_000), ("deep_schema_in_a_grammar", 400_000),
                ("ambiguous_sequences", 60_000), ("large_literal", 860_000)],
    "pattern": [("classes", 60_000), ("dots", 60_000), ("nested_groups", 600),
                ("look_ahead_at_the_end", 60_000), ("quantities", 60_000)],
    "text": [("deep_arrays", 400_000), ("keys_in_a_row", 700_000), ("deep_objects", 900_000),
             ("keys_below", 700_000), ("empty_arrays", 700_000)],
    "prompt": [("one_letter", 900_000), ("parts_of_control_tokens", 900_000),
               ("combining_marks", 400_000)],
}
FULL_BYTES = 1_000_000  # of an input, at most
# A sanitizer's stack ends earlier, and everything takes its CPU many times as long
SANITIZED_BYTES = 100_000
FULL_QUEUES = ["many_prompts"]  # others wait for a slot, as they should
# Inputs for each field of a kind
FEWEST = {"schema": 1, "grammar": 3, "pattern": 2, "text": 2, "prompt": 1}


@dataclasses.dataclass
class Attack:
    field: costly_inputs.Field
    shape: object
    size: int
    sent: int = 0

    def __str__(self):
        return f"{self.shape.__name__} of {self.size} bytes in {self.field}" + (
            ", a line of a batch" if self.field.line_of_batch else "")

    def body(self):
        """Another one each time, of nearly the size: grammars are kept."""
        self.sent += 1
        return self.field.body(self.shape(self.size - max(self.size // 100, 40) * (self.sent % 20)))


def attacks():
    """Every field, and every worst input."""
    shapes = {(kind, shape.__name__): shape for kind, made in SHAPES.items() for shape in made}
    for kind, worst in WORST.items():
        fields = [field for field in FIELDS if field.kind == kind]
        for i in range(max(len(fields) * FEWEST[kind], len(worst))):
            field = fields[i % len(fields)]
            name, size = worst[(i + i // len(fields)) % len(worst)]
            yield Attack(field, shapes[kind, name], min(size, field.most_bytes))
    for field, shape in WHOLE:
        yield Attack(field, shape, 900_000)


def burn(begun):
    os.nice(BACKGROUND_NICE)
    begun.set()
    while True:
        sum(range(100_000))


class Failed(Exception):
    pass


class Target:
    """The server, which a hostile request may end: then another one."""

    def __init__(self, larder, model, folder, *options, most_bytes=FULL_BYTES):
        self.larder, self.model, self.folder, self.options, self.most_bytes = (larder, model,
                                                                               folder, [
                                                                                   *OPTIONS,
                                                                                   *options
                                                                               ], most_bytes,
                                                                               )
        self.server = self.bystanders = None

    def start(self):
        self.server = Server(self.larder, self.model, *self.options, "--batch-dir",
                             str(self.folder / f"batch-{time.monotonic_ns()}")).__enter__()
        for _ in range(2):  # what the first requests make stays
            self.server.post("/completion",
                             {"prompt": "Once", "n_predict": 4, "json_schema": {"type": "object"}})
            self.server.post("/tokenize", {"content": "word " * (self.most_bytes // 5)})
        self.before = self.resident()

    def stop(self):
        if self.server is not None:
            self.server.process.kill()
            self.server.process.wait()
            self.server = None

    pid = property(lambda self: self.server.process.pid)

    def resident(self):
        return threads.resident_bytes(self.pid)

    def cpu(self):
        seconds = threads.cpu_seconds(self.pid)
        return seconds[IO], sum(seconds[name] for name in BESIDE)

    def send(self, attack):
        """What the server says, or "" if the attacker has left before, having waited for
        PATIENCE_S.
        """
        body = attack.body()
        if attack.field.line_of_batch:
            return self.send_batch(body)
        is_text = attack.field.path == "text"
        head = (b"" if is_text else
                (f"POST {attack.field.path} HTTP/1.1\r\nHost: localhost\r\nConnection:"
                 f" close\r\nContent-Length: {len(body)}\r\n\r\n".encode()))
        said = b""
        with self.server.connect(self.server.text if is_text else self.server.http,
                                 timeout=PATIENCE_S) as connection:
            try:
                connection.sendall(head + body + (b"\n" if is_text else b""))
                if is_text:
                    connection.shutdown(socket.SHUT_WR)
                while data := connection.recv(65536):
                    said += data
            except TimeoutError:
                return ""
            except OSError:
                pass
        return said.decode(errors="replace")

    def send_batch(self, line):
        form = (
            b'--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            b'--edge\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n' +
            line + b"\n\r\n--edge--\r\n")
        head = (
            "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type:"
            f" multipart/form-data; boundary=edge\r\nContent-Length: {len(form)}\r\n\r\n").encode()
        try:
            with self.server.connect(self.server.http, timeout=10) as connection:
                connection.sendall(head + form)
                said = b""
                while data := connection.recv(65536):
                    said += data
            status, reply = split_reply(said)
            if status == 200:
                batches.create(self.server, json.loads(reply)["id"])
            return reply.decode(errors="replace")
        except (OSError, ValueError, IndexError):
            return ""

    def settled(self, limit_s=10.0):
        """Waits until no thread beside works any more. False: it never does, or the server is
        gone.
        """
        until = rested_since = time.monotonic()
        until += limit_s
        while (now := time.monotonic()) < until and self.alive():
            if threads.any_runs(self.pid, BESIDE):  # or would, if the machine had a core for it
                rested_since = now
            elif now - rested_since > SETTLED_S:
                return True
            time.sleep(0.003)
        return False

    def alive(self):
        return self.server.process.poll() is None


def check(what, value, most, unit=1e3, name="ms"):
    if value > most:
        raise Failed(f"{what} {value * unit:.0f} {name}: expected at most {most * unit:.0f}")


def alone(target, attack):
    """What the kernel counts."""
    threads.begin_peak(target.pid)
    resident, (io, beside) = target.resident(), target.cpu()
    said = target.send(attack)
    settled = target.settled()
    if not target.alive():
        raise Failed(f"it has ended the server, status {target.server.process.wait()}")
    io, beside = (now - then for now, then in zip(target.cpu(), (io, beside)))
    grown = threads.peak_bytes(target.pid) - resident
    result = (
        f"I/O thread {io * 1e3:.1f} ms, beside it {beside * 1e3:.0f} ms, {grown / 1e6:+.0f} MB; "
        f"{said.splitlines()[0] if said else 'left'}")
    check("the I/O thread was busy for", io, MOST_IO_S)
    check("the threads beside it were busy for", beside, MOST_BESIDE_S)
    if not settled:
        raise Failed("the server never came to rest")
    check("the process has grown by", grown, MOST_BYTES, 1e-6, "MB")
    return result


def control(bystanders):
    begun = SPAWN.Event()
    process = SPAWN.Process(target=burn, args=(begun,), daemon=True)
    process.start()
    begun.wait()
    begin = time.monotonic()
    time.sleep(CONTROL_S)
    waits = bystanders.longest_waits(begin, time.monotonic())
    process.kill()
    process.join()
    return waits


def beside_others(target, bystanders, attack, rounds, usual):
    """How much longer others wait. usual: the longest waits of all controls so far."""
    for _ in range(rounds):
        for kind, wait in control(bystanders).items():
            usual[kind] = max(usual.get(kind, 0), wait)
        begin = time.monotonic()
        said = target.send(attack)
        time.sleep(ANSWERED_S if said and not attack.field.line_of_batch else GOES_ON_S)
        waits = bystanders.longest_waits(begin, time.monotonic())
        if not target.alive():
            raise Failed(f"it has ended the server, status {target.server.process.wait()}")
        late = {kind: wait for kind, wait in waits.items() if wait > usual[kind] + MOST_WAIT_S}
        if not late:
            return ", ".join(f"{kind} {wait * 1e3:.0f} ms ({usual[kind] * 1e3:.0f})"
                             for kind, wait in waits.items())
    raise Failed("others waited, each time: " +
                 ", ".join(f"{kind} {wait * 1e3:.0f} ms ({usual[kind] * 1e3:.0f} without it)"
                           for kind, wait in late.items()))


def while_it_answers(larder, folder):
    """What a call that the model writes is looked up in: the I/O thread reads answers, and a tool's
    schema is the client's.
    """
    model = folder / "scripted.gguf"
    scripted_model.write(str(model))
    with Server(larder, str(model), "-t", "1", "-c", "16384", "--tool-parser",
                "qwen3_coder") as server:
        tool = {
            "type": "function",
            "function": {"name": "f", "parameters": costly_inputs.dozens_of_references(40)},
        }
        before = threads.cpu_seconds(server.process.pid)[IO]
        status, reply = server.post(
            "/v1/chat/completions", {
                "messages": [{"role": "user", "content": "#xml_call please"}], "tools": [tool],
                "max_tokens": 300
            })
        io = threads.cpu_seconds(server.process.pid)[IO] - before
        assert status == 200 and json.loads(reply)["choices"][0]["message"]["tool_calls"], (status,
                                                                                            reply)
        print(
            "an answer whose call has dozens of references in its schema: I/O thread"
            f" {io * 1e3:.1f} ms", flush=True,
        )
        check("an answer keeps the I/O thread busy for", io, MOST_IO_S)


class Run:
    def __init__(self, target, args):
        self.target, self.args, self.failures = target, args, []

    def each(self, all_attacks, measure, start, end):
        handle = None
        for attack in all_attacks:
            if self.target.server is None:
                self.target.start()
                handle = None
            handle = handle or start()
            try:
                print(f"{attack}: {measure(handle, attack)}", flush=True)
            except Failed as failed:
                print(f"FAILED {attack}: {failed}", flush=True)
                self.failures.append(f"{attack}: {failed}")
                if not self.args.list and not self.args.only_print:
                    raise
                if self.args.only_print and self.target.alive():
                    continue
                end(handle)
                self.target.stop()
        if self.target.server is not None:
            end(handle)

    def quiet(self, all_attacks):
        self.each(all_attacks, lambda _, attack: alone(self.target, attack), lambda: True,
                  lambda _: None)
        if self.target.server is not None and not self.failures:
            left = self.target.resident() - self.target.before
            print(f"left when all have gone: {left / 1e6:+.1f} MB")
            check("all of them have left", left, MOST_LEFT, 1e-6, "MB")

    def answers(self, folder):
        try:
            while_it_answers(self.args.larder, folder)
        except Failed as failed:
            self.failures.append(f"while it answers: {failed}")
            print("FAILED", self.failures[-1])
            if not self.args.list:
                raise

    def loud(self, all_attacks):
        rounds, usual = 1 if self.args.list else ROUNDS, {}
        self.each(
            all_attacks, lambda bystanders, attack: beside_others(self.target, bystanders, attack,
                                                                  rounds, usual),
            lambda: Bystanders(self.target.server), lambda bystanders: bystanders.__exit__())


def main():
    parser = programs.parser(__doc__, "larder", "model")
    parser.add_argument("--list", action="store_true", help="go on after failures, and list them")
    parser.add_argument("--only-print", action="store_true",
                        help="assert only that the server lives: with a sanitizer times say little")
    parser.add_argument("--only", default="", help="attacks with this in their names")
    parser.add_argument("--without-others", action="store_true", help="only what the kernel counts")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="larder-test-") as folder:
        most_bytes = SANITIZED_BYTES if args.only_print else FULL_BYTES
        target = Target(args.larder, args.model, pathlib.Path(folder), most_bytes=most_bytes)
        run = Run(target, args)
        chosen = [attack for attack in attacks() if args.only in str(attack)]
        for attack in chosen:
            attack.size = min(attack.size, most_bytes)
        try:
            run.quiet(chosen)
            if not args.without_others and not args.only_print:
                seen = set()
                # Each input once: where it stands is what was tried above.
                run.loud([
                    attack for attack in chosen if attack.shape.__name__ not in FULL_QUEUES and
                    not (key := (attack.shape, attack.size)) in seen and not seen.add(key)
                ])
            if not args.only_print and not args.only:
                run.answers(pathlib.Path(folder))
        finally:
            target.stop()
    if run.failures:
        print(f"\n{len(run.failures)} failures:", *run.failures, sep="\n")
        if not args.only_print or any("ended the server" in failure for failure in run.failures):
            return 1
    print("all as expected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
