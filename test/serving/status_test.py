#!/usr/bin/env python3
"""What the server shows of its sockets, at /v1/larder/plan, /v1/larder/status and /metrics: of one
machine, of separated sockets and of a chain of stages, as threads and as processes.

Usage: status_test.py --larder PROGRAM --model FILE
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import clusters, programs
from larder_testing.clusters import socket
from larder_testing.processes import Process
from larder_testing.server import Server

OPTIONS = argparse.Namespace(larder=None, model=None)

SEPARATED = [socket("weights", "weight", "cores:0"), socket("kv", "attention", "cores:1")]
CHAIN = [socket("first", "colocated", "cores:0"), socket("second", "colocated", "cores:1")]
# A separated stage before a colocated one.
MIXED = [
    socket("weights", "weight", "cores:0"),
    socket("kv", "attention", "cores:1", **{"for": "weights"}),
    socket("second", "colocated", "cores:0"),
]


class StatusTest(unittest.TestCase):
    def setUp(self):
        self.folder = programs.folder_of(self)

    def manifest(self, sockets):
        path = self.folder / "cluster.toml"
        path.write_text(
            clusters.manifest(clusters.server("here", *sockets), name=f"status-{os.getpid()}"))
        return str(path)

    def get(self, served, path):
        status, body = served.get(path)
        self.assertEqual(status, 200, body)
        return body.decode()

    def look(self, *options):
        """Plan, status and metrics after some tokens, sockets by name."""
        with Server(OPTIONS.larder, OPTIONS.model, *options) as served:
            for _ in range(2):  # long enough for what is measured now and then
                status, body = served.post(
                    "/v1/completions", {"prompt": "One day", "max_tokens": 300, "ignore_eos": True})
                self.assertEqual(
                    (status, json.loads(body).get("usage", {}).get("completion_tokens")),
                    (200, 300), body)
            plan = json.loads(self.get(served, "/v1/larder/plan"))
            status = json.loads(self.get(served, "/v1/larder/status"))
            metrics = dict(
                re.findall(r'^(\w+\{socket="[^"]+"\}) (\S+)$', self.get(served, "/metrics"), re.M))
        planned = {socket["name"]: socket for socket in plan["sockets"]}
        shown = {socket["name"]: socket for socket in status["sockets"]}
        self.assertEqual(list(planned), list(shown))
        for name, socket in shown.items():
            self.check_socket(
                socket, {
                    metric.partition("{")[0]: float(value)
                    for metric, value in metrics.items() if f'"{name}"' in metric
                })
            groups = planned[name]["l3_groups"]
            self.assertGreater(sum(len(group["threads"]) for group in groups), 0, name)
            if planned[name]["role"] != "attention":
                self.assertGreater(socket["weight_bytes"], 0)
                self.assertGreaterEqual(socket["resident_share"], 0)
        return plan, planned, shown

    def check_socket(self, socket, metrics):
        name = socket["name"]
        self.assertEqual(socket["state"], "serving", name)
        self.assertGreater(socket["frames"], 500, name)
        self.assertGreater(socket["tokens"], 500, name)
        self.assertGreater(socket["mean_step_seconds"], 0, name)
        self.assertLess(socket["mean_step_seconds"], 1, name)
        self.assertGreater(socket["wait_seconds_total"], 0, name)
        self.assertTrue(0 < socket["waiting_ratio"] < 1, socket)
        self.assertLessEqual(socket["resident_bytes"], socket["weight_bytes"], name)
        self.assertEqual(metrics["larder_socket_frames_total"], socket["frames"], name)
        self.assertEqual(metrics["larder_socket_weight_bytes"], socket["weight_bytes"], name)
        self.assertEqual(metrics["larder_socket_resident_bytes"], socket["resident_bytes"], name)
        # Where threads hold less than a sample of each layer there is no figure.
        # The text of metrics has 16 digits, the JSON as many as the double needs.
        live = metrics.get("larder_socket_live_resident_ratio")
        self.assertEqual(live is None, socket["resident_share_live"] is None, name)
        if live is not None:
            self.assertAlmostEqual(live, socket["resident_share_live"], msg=name)
        self.assertGreater(metrics["larder_socket_step_seconds"], 0, name)
        self.assertTrue(0 < metrics["larder_socket_waiting_ratio"] < 1, name)
        self.assertAlmostEqual(metrics["larder_socket_link_round_trip_seconds"],
                               socket["link_round_trip_seconds"] or 0)

    def check_round_trip(self, socket):
        self.assertGreater(socket["link_round_trip_seconds"], 1e-8, socket)
        self.assertLess(socket["link_round_trip_seconds"], 1, socket)

    def test_one_machine(self):
        plan, planned, shown = self.look()
        self.assertEqual([socket["role"] for socket in plan["sockets"]], ["colocated"])
        socket, = shown.values()
        threads = sum(len(group["threads"]) for group in plan["sockets"][0]["l3_groups"])
        self.assertEqual(len(socket["thread_resident_share"]), threads)
        self.assertEqual(len(socket["thread_resident_share_live"]), threads)
        self.assertEqual(len(socket["layer_resident_share_live"]), plan["model"]["layers"])
        self.assertIsNone(socket["link_round_trip_seconds"])

    def test_a_server_by_hand_has_a_row_of_larder_status(self):
        with Server(OPTIONS.larder, OPTIONS.model) as served:
            served.post("/v1/completions", {"prompt": "One day", "max_tokens": 30})
            _, said = programs.run(OPTIONS.larder, "status", "--json")
            row, = [row for row in json.loads(said)["sockets"]
                    if row.get("pid") == served.process.pid]
        self.assertEqual((row["cluster"], row["socket"], row["state"]),
                         ("larder", f"serve-{served.process.pid}", "serving"))
        self.assertGreater(row["frames"], 20)
        self.assertGreater(row["weight_mb"], 0)

    def check_separated(self, plan, planned, shown):
        self.assertEqual({name: socket["role"] for name, socket in planned.items()},
                         {"weights": "weight", "kv": "attention"})
        self.assertEqual(plan["links"], [{"from": "weights", "to": "kv", "kind": "shm"}])
        self.check_round_trip(shown["kv"])
        self.assertGreater(shown["weights"]["resident_bytes"], 0)
        self.assertEqual(planned["kv"]["slots"], plan["slots"])

    def test_separated_threads(self):
        self.check_separated(*self.look("--manifest", self.manifest(SEPARATED)))

    def test_separated_processes(self):
        manifest = self.manifest(SEPARATED)
        with self.node(manifest, "kv"):
            self.check_separated(*self.look("--manifest", manifest, "--join"))

    def check_chain(self, plan, planned, shown):
        self.assertEqual(list(planned), ["serving", "first", "second"])
        layers = [(planned[name]["first_layer"], planned[name]["layers"])
                  for name in ("first", "second")]
        self.assertEqual(layers[0][0], 0)
        self.assertEqual(layers[1], (layers[0][1], plan["model"]["layers"] - layers[0][1]))
        self.assertEqual([planned[name]["server"] for name in ("first", "second")],
                         ["here", "here"])
        self.assertTrue(planned["serving"]["lm_head"] and planned["serving"]["embedding"])
        self.assertEqual([(link["from"], link["to"]) for link in plan["links"]],
                         [("serving", "first"), ("first", "second"), ("second", "serving")])
        self.check_round_trip(shown["serving"])
        self.assertGreater(sum(socket["resident_bytes"] for socket in shown.values()), 0)

    def test_chain_threads(self):
        self.check_chain(*self.look("--manifest", self.manifest(CHAIN)))

    def test_chain_processes(self):
        manifest = self.manifest(CHAIN)
        with self.node(manifest, "first"), self.node(manifest, "second"):
            self.check_chain(*self.look("--manifest", manifest, "--join"))

    def test_mixed_chain_processes(self):
        manifest = self.manifest(MIXED)
        with self.node(manifest, "weights"), self.node(manifest,
                                                       "kv"), self.node(manifest, "second"):
            plan, planned, _ = self.look("--manifest", manifest, "--join")
        self.assertEqual(
            {name: socket["role"] for name, socket in planned.items()},
            {"serving": "serving", "weights": "weight", "kv": "attention", "second": "colocated"})
        self.assertEqual(planned["second"]["layers"] + planned["weights"]["layers"],
                         plan["model"]["layers"])

    @contextlib.contextmanager
    def node(self, manifest, name):
        command = [
            OPTIONS.larder, "node", "-m", OPTIONS.model, "--manifest", manifest, "--socket", name
        ]
        with Process(command, self.folder / name) as process:
            yield process
            process.process.terminate()
            self.assertIsNotNone(process.wait(30), process.said())


if __name__ == "__main__":
    OPTIONS = programs.options_of_tests(programs.parser(__doc__, "larder", "model"))
    programs.skip_without_two_cpus("a socket has at least one")
    unittest.main()
