"""A stand-in for `larder serve` with a machine that we don't have: it serves the page's files from
the tree, a plan of any size, a status that moves, and the answers that a test wants, hostile ones
too."""

import http.server
import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from larder_testing import ROOT

PAGE = ROOT / "serving" / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
# That of serving/page/page.h, read from it, so that the page is tested under it.
POLICY = "".join(part for part in (PAGE / "page.h").read_text().split("kPageSecurityPolicy =")[1]
                 .split(";\n")[0].split('"')[1::2])

LAYERS, SLOTS = 28, 32


def plan(servers=2, groups=8, cores=8, chat_format="llama3"):
    """Weight sockets of `groups` L3 groups each, and an attention socket on the first server."""
    def group(i, used, weight_bytes):
        ids = list(range(i * cores, (i + 1) * cores))
        return {
            "id": i, "package": 0, "l3_bytes": 96 << 20, "budget_bytes": 72 << 20,
            "weight_bytes": weight_bytes, "cores": ids, "threads": [{
                "core": c, "cpu": c, "numa_node": 0, "weight_bytes": weight_bytes // len(ids[:used])
            } for c in ids[:used]]
        }

    sockets = []
    for s in range(servers):
        sockets.append({
            "name": f"weights-{s}", "role": "weight", "server": f"node{s}",
            "first_layer": s * LAYERS // servers, "layers": LAYERS // servers, "embedding": s == 0,
            "lm_head": s == servers - 1, "first_slot": 0, "slots": 0, "kv_bytes": 0,
            "l3_groups": [group(i, cores - 1, (80 if i == 1 else 66) << 20) for i in range(groups)]
        })
    sockets.append({
        "name": "attention-0", "role": "attention", "server": "node0", "first_layer": 0,
        "layers": 0, "embedding": False, "lm_head": False, "first_slot": 0, "slots": SLOTS,
        "kv_bytes": 1 << 30, "l3_groups": [group(i, cores, 0) for i in range(groups, groups + 2)]
    })
    return {
        "object": "larder.plan", "machine": "two servers", "isa": "avx512-vnni", "model": {
            "name": "stub-3b", "architecture": "llama", "chat_format": chat_format,
            "parameters": 3_212_749_888, "layers": LAYERS, "dim": 3072, "ffn": 8192, "heads": 24,
            "kv_heads": 8, "vocab": 128256
        }, "context": 4096, "slots": SLOTS, "max_in_flight": 2, "weight_bytes": 3_400_000_000,
        "kv_bytes": 1 << 30, "sockets": sockets,
        "links": [{"from": "weights-0", "to": "weights-1", "kind": "rdma"},
                  {"from": "weights-0", "to": "attention-0", "kind": "memory"}],
        "notes": ["1 of 16 L3 groups: their weights exceed their budget"]
    }


def status(plan_json, tick):
    bounds = [m * d for d in (1e-4, 1e-3, 1e-2) for m in (1, 1.5, 2, 3, 5, 7)] + [None]
    counts = [0, 0, 0, 1, 4, 9, 30, 85, 140, 61, 22, 6, 2, 1] + [0] * 5
    sockets = []
    for s in plan_json["sockets"]:
        threads = sum(len(g["threads"]) for g in s["l3_groups"])
        weights = s["layers"] > 0
        frames = 1000 + 800 * tick
        sockets.append({
            "name": s["name"], "state": "serving", "frames": frames, "tokens": 9 * frames,
            "step_seconds_total": 9 + frames * 0.00117, "wait_seconds_total": 70 + frames * 0.00003,
            "link_wait_seconds_total": frames * 0.00001, "waiting_ratio": 0.8,
            "mean_step_seconds": 0.01, "weight_bytes": 1_700_000_000,
            "resident_bytes": 1_600_000_000, "resident_share": 0.99 if weights else None,
            "resident_share_live": 0.962 if weights else None,
            "thread_resident_share": [0.99] * threads if weights else [],
            "thread_resident_share_live": ([0.2 if i % 14 == 9 else 0.99
                                            for i in range(threads)] if weights else []),
            "layer_resident_share_live": [0.962] * s["layers"],
            "link_round_trip_seconds": 3.1e-6
        })
    slots = [
        {
            "state": ("decode", "decode", "prefill", "idle", "idle")[i % 5],
            "cached_tokens": (i * 137 + tick * 9) % 4096,
            "generated_tokens": tick,
        }
        for i in range(SLOTS)
    ]
    return {
        "object": "larder.status", "state": "serving", "loading_share": 1, "version": "0.1.0",
        "uptime_seconds": 7321 + tick, "slots_used": sum(s["state"] != "idle" for s in slots),
        "slots": slots, "kv_chunks": {"total": 64, "used": 24, "shared": 3},
        "queue": {"waiting": 3, "limit": 256}, "connections": {"http": 21, "text": 2},
        "generated_tokens_per_second": 8200 + 900 * (tick % 5), "prompt_tokens_per_second": 15231,
        "generated_tokens_total": 10_000 + tick, "prompt_tokens_total": 77_000, "tpot": {
            "count": sum(counts), "sum_seconds": 1.0,
            "buckets": [{"upper_seconds": b, "count": c} for b, c in zip(bounds, counts)]
        }, "sockets": sockets
    }


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, code, kind, body):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        server = self.server
        if self.path == "/v1/larder/plan":
            return self.answer(200, "application/json", json.dumps(server.plan))
        if self.path == "/v1/larder/status":
            server.tick += 1
            return self.answer(200, "application/json", json.dumps(status(server.plan,
                                                                          server.tick)))
        file = PAGE / ("index.html" if self.path == "/" else self.path.removeprefix("/page/"))
        if file.parent == PAGE and file.is_file():
            return self.answer(200, TYPES[file.suffix], file.read_bytes())
        return self.answer(404, "application/json", '{"error":{"message":"no such page"}}')

    def do_POST(self):
        server = self.server
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.requests.append((self.path, request))
        if server.refuse:
            code, message, *param = server.refuse
            error = {"message": message, "type": "x", **({"param": param[0]} if param else {})}
            return self.answer(code, "application/json", json.dumps({"error": error}))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        chat = self.path.endswith("chat/completions")
        try:
            for piece in server.answers.pop(0) if server.answers else server.pieces:
                if isinstance(piece, dict):
                    self.event(piece)
                    continue
                self.event({
                    "choices": [{
                        "index": 0, "finish_reason": None,
                        **({"delta": {"content": piece}} if chat else {"text": piece})
                    }]
                })
                time.sleep(server.pause_s)
            if server.whole:
                self.event({
                    "choices": [{
                        "index": 0, "finish_reason": server.finish,
                        **({"delta": {}} if chat else {"text": ""})
                    }], "timings": {"predicted_per_second": 1234.5}
                })
                self.event({"choices": [], "usage": {"completion_tokens": len(server.pieces)}})
                self.wfile.write(b"data: [DONE]\n\n")
        except (BrokenPipeError, ConnectionResetError):
            server.gone.set()

    def event(self, value):
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()


def thought(text):
    return {"choices": [{"index": 0, "finish_reason": None, "delta": {"reasoning_content": text}}]}


def call(index, name, arguments, call_id):
    """The deltas of one call: its name, then its arguments in two pieces."""
    half = len(arguments) // 2
    functions = [{"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}},
                 {"function": {"arguments": arguments[:half]}},
                 {"function": {"arguments": arguments[half:]}}]
    return [{
        "choices": [{
            "index": 0, "finish_reason": None, "delta": {"tool_calls": [{"index": index, **f}]}
        }]
    } for f in functions]


class StubServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, plan_json=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.plan = plan_json or plan()
        self.tick = 0
        self.pieces, self.pause_s, self.whole, self.refuse = ["Hello", " there"], 0, True, None
        self.answers, self.finish = [], "stop"  # answers: pieces of the next ones, before `pieces`
        self.requests, self.gone = [], threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


if __name__ == "__main__":  # to look at the page while working on it
    stub = StubServer()
    stub.pieces, stub.pause_s = [
        word + " " for word in ("a fox named Teddy went to the meadow " * 20).split()
    ], 0.05
    print(stub.url)
    threading.Event().wait()
