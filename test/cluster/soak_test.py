#!/usr/bin/env python3
"""What soak.py judges by, with planted errors: a leak, a thread too many, a text that differs, an
error while nothing was broken.
"""
import argparse
import random
import unittest

import soak


def options(**more):
    return argparse.Namespace(
        **{
            "seconds": 600.0, "clients": 1, "fault_every": 0, "isolated": False, "requests": 2,
            "context": 256, "slots": 2, "seed": 1, "growth_mb": 8, **more
        })


class Judging(unittest.TestCase):
    def setUp(self):
        self.run_ = soak.Run(options())
        self.run_.begun, self.run_.until = 1000.0, 1600.0
        self.run_.truth = {("http-whole", 0): "Once upon a time", ("text-plain", 0): "a",
                           ("long", 0): "b"}
        self.run_.is_wrong = self.run_.wrong.append

    # flat or not

    def verdicts(self, of, processes=((0, 600),)):
        """Which quantities grow, of samples of(t) in processes that live from and until."""
        watch, rng = soak.Watch(self.run_), random.Random(1)
        for pid, (born, died) in enumerate(processes):
            for t in range(born, died):
                watch.samples.setdefault("serving", []).append((t, pid, t - born, {
                    "VmRSS": int(50e6 + rng.uniform(0, 1e6) + of(t).get("VmRSS", 0)),
                    "descriptors": 20 + rng.randrange(5) + of(t).get("descriptors", 0),
                    "threads": 9 + of(t).get("threads", 0)
                }))
        return [line.split()[1] for line, flat in watch.verdicts(600.0, 20.0) if not flat]

    def test_flat_is_flat(self):
        self.assertEqual(self.verdicts(lambda t: {}), [])

    def test_a_warm_up_is_no_leak(self):
        self.assertEqual(self.verdicts(lambda t: {"VmRSS": min(t, 20) * 1e6}), [])

    def test_leaks_are_found(self):
        self.assertEqual(self.verdicts(lambda t: {"VmRSS": t * 50e3}), ["VmRSS"])
        self.assertEqual(self.verdicts(lambda t: {"descriptors": t // 20}), ["descriptors"])
        self.assertEqual(self.verdicts(lambda t: {"threads": t // 60}), ["threads"])

    def test_a_step_is_found(self):
        self.assertEqual(self.verdicts(lambda t: {"threads": 4 if t > 305 else 0}), ["threads"])

    def test_processes_that_come_and_go(self):
        lives = [(t, t + 60) for t in range(0, 600, 60)]
        self.assertEqual(self.verdicts(lambda t: {}, lives), [])
        # Each leaks in its short life
        self.assertEqual(self.verdicts(lambda t: {"VmRSS": t % 60 * 200e3}, lives), ["VmRSS"])

    def test_a_long_life_tells_more_than_short_ones(self):
        lives = [(t, t + 40) for t in range(0, 400, 40)] + [(400, 600)]
        warming = lambda t: {"VmRSS": (t % 40 if t < 400 else min(t - 400, 40)) * 200e3}
        self.assertEqual(self.verdicts(warming, lives), [])
        self.assertEqual(self.verdicts(lambda t: {"VmRSS": max(0, t - 400) * 200e3}, lives),
                         ["VmRSS"])

    def test_what_happens_while_a_stage_is_away_does_not_count(self):
        self.run_.faults.windows = [[1400.0, 1430.0]]
        self.assertEqual(self.verdicts(lambda t: {"descriptors": 200 if 400 <= t <= 430 else 0}),
                         [])

    def test_too_few_samples_of_the_serving_process_are_no_proof(self):
        self.assertEqual(self.verdicts(lambda t: {}, [(590, 600)]),
                         ["VmRSS", "descriptors", "threads"])

    def test_slope(self):
        self.assertAlmostEqual(
            soak.slope([[(t, 3 * t + 7) for t in range(10)],
                        [(t, 3 * t - 100) for t in range(50, 60)]]), 3)
        self.assertEqual(soak.slope([[(1, 5)], []]), 0)

    # errors

    def client(self, error, windows=(), kind="http-whole"):
        self.run_.faults.windows = [list(w) for w in windows]
        self.run_.wrong.clear()
        now = soak.time.monotonic()
        soak.Client(self.run_, 1).excuse(kind, 0, now - 10, error)
        return self.run_.wrong

    def test_errors_while_a_stage_is_away(self):
        now = soak.time.monotonic()
        away = [(now - 12, now - 5)]
        self.assertEqual(self.client(soak.Failed(503, "lost socket b-stage", "Once upon"), away),
                         [])
        self.assertIn("no stage was killed",
                      self.client(soak.Failed(503, "lost socket b-stage"))[0])
        self.assertIn("no stage was killed",
                      self.client(soak.Failed(503, "lost"), [(now - 30, now - 20)])[0])
        self.assertIn("not an error that is documented",
                      self.client(soak.Failed(0, "the stream ended without [DONE]"), away)[0])
        self.assertIn("before its error",
                      self.client(soak.Failed(503, "lost", "Once upon a tine"), away)[0])
        self.assertIn("instead of an answer", self.client(ConnectionResetError("reset"), away)[0])

    def test_a_fault_that_is_not_over_excuses(self):
        self.assertEqual(self.client(soak.Failed(503, "lost"), [(soak.time.monotonic() - 1, None)]),
                         [])

    def test_a_text_that_differs(self):
        class Asker:
            ask = lambda *_: "Once upon a tine"  # noqa: E731
        self.run_.asker = Asker()
        client = soak.Client(self.run_, 1)
        client.rng = argparse.Namespace(random=lambda: 0.9)
        client.one("http-whole", 0)
        self.assertIn("alone 'Once upon a time'", self.run_.wrong[0])


if __name__ == "__main__":
    unittest.main()
