#!/usr/bin/env python3
"""What programs that work as agents send, turn by turn, to `larder serve` with a scripted model: a
task to its end with calls of tools, turns that are broken off, a context that is full and a
conversation that is made shorter then, servers that are killed between turns and within one. Each
program here has the shape of a real one's requests, and goes on only if it can read the answer.

Usage: agents_replay_test.py --larder PROGRAM
"""
import concurrent.futures
import dataclasses
import http.client
import json
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import programs, scripted_model
from larder_testing.scripts_of_model import ENDLESS, SCRIPTS
from larder_testing.server import LIMIT_S, Server

OPTIONS = None
CHUNK = 256  # tokens of KV that a file of --cache-dir has
SYSTEM = "You mend programs. Read before you write, and run the tests when you have written. " * 4
PLACE = "<environment>\nfolder: /home/ann/sums\nshell: bash\n</environment>"
TASK = "The tests of src/sum.py fail. #repair"
SHORTER = "Say in a few words what was done and what is left to do. #plain"
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def text_tool(name, what, **properties):
    return name, what, {"type": "object", "properties": properties, "required": list(properties)}


TOOLS = [
    text_tool("read_file", "The text of a file.", path={"type": "string"},
              offset={"type": "integer"}),
    text_tool("write_file", "Writes a file.", path={"type": "string"}, content={"type": "string"}),
    text_tool("shell", "Runs a program.", command={"type": "array", "items": {"type": "string"}}),
]
SPACE = "mcp__tests"
SPACED = text_tool("run", "Runs tests by their names.",
                   names={"type": "array", "items": {"type": "string"}})
FLAT = [*TOOLS, (f"{SPACE}__{SPACED[0]}", *SPACED[1:])]
RESULTS = {
    "read_file": "def total(a, b):\n    return a - b\n", "write_file": "",
    "shell": "-    return a - b\n+    return a + b\n", f"{SPACE}__run": "1 passed",
    "final_answer": "There is one file."
}
CALLS = [["read_file"], ["write_file"], [f"{SPACE}__run", "shell"], []]  # of the script, by turn


@dataclasses.dataclass
class Answer:
    """What a program has read: calls are (id, name, arguments as text)."""
    text: str
    thought: str
    calls: list
    prompt: int  # tokens
    cached: int  # of them
    raw: object  # as the program keeps it


class Refused(Exception):
    def __init__(self, status, error):
        super().__init__(f"{status}: {error}")
        self.status, self.error = status, error


def events(body):
    """The objects of a stream of events."""
    return [
        json.loads(line[len("data: "):]) for line in body.decode().splitlines()
        if line.startswith("data: ") and line != "data: [DONE]"
    ]


class Agent:
    """A conversation. A subclass has `path`, body(): the next request, read(body): the Answer,
    said(text): what the user says, keep(answer, results): the turn becomes part of the history,
    begin(): a history without a turn, overflow(refused): whether the program takes this error for a
    context that is full."""
    path = headers = ""

    def __init__(self, task=TASK):
        self.history = []
        self.begin()
        self.said(task)

    def body(self, tools=True):
        raise NotImplementedError

    def turn(self, server, **how):
        status, body = server.post(self.path, self.body(**how), self.headers)
        if status != 200:
            raise Refused(status, json.loads(body)["error"])
        return self.read(body)

    def results_of(self, answer, results):
        return [(at, name, results[name]) for at, name, _ in answer.calls]

    def work(self, server, results, turns=8):
        """Turns until the model calls nothing more."""
        answers = []
        while len(answers) < turns:
            answers.append(self.turn(server))
            self.keep(answers[-1], results)
            if not answers[-1].calls:
                break
        return answers


class OpenCode(Agent):
    """Chat completions, streamed, every content a string; thoughts go back as reasoning_content."""
    path = "/v1/chat/completions"

    def begin(self):
        self.history = [{"role": "system", "content": SYSTEM}]

    def said(self, text):
        self.history.append({"role": "user", "content": text})

    def body(self, tools=True):
        chosen = (
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": name, "description": what, "parameters": schema},
                    }
                    for name, what, schema in FLAT
                ],
                "tool_choice": "auto",
            }
            if tools
            else {}
        )
        return {
            "model": "any", "max_tokens": 32000, "temperature": 0, "top_p": 1,
            "messages": self.history, "stream": True, "stream_options": {"include_usage": True},
            **chosen
        }

    def read(self, body):
        text, thought, calls, usage, finish = "", "", {}, None, None
        assert body.rstrip().endswith(b"data: [DONE]"), body[-200:]
        for event in events(body):
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                delta, finish = choice["delta"], choice["finish_reason"] or finish
                text += delta.get("content") or ""
                thought += delta.get("reasoning_content") or ""
                for part in delta.get("tool_calls") or []:
                    call = calls.setdefault(part["index"], {
                        "id": part.get("id"), "name": part["function"].get("name"), "arguments": ""
                    })
                    call["arguments"] += part["function"].get("arguments") or ""
        assert finish == ("tool_calls" if calls else "stop"), finish
        return Answer(text, thought, [(call["id"], call["name"], call["arguments"])
                                      for _, call in sorted(calls.items())], usage["prompt_tokens"],
                      usage["prompt_tokens_details"]["cached_tokens"], None)

    def keep(self, answer, results):
        message = {"role": "assistant", "content": answer.text}
        if answer.thought:
            message["reasoning_content"] = answer.thought
        if answer.calls:
            message["tool_calls"] = [
                {"id": at, "type": "function", "function": {"name": name, "arguments": arguments}}
                for at, name, arguments in answer.calls
            ]
        self.history.append(message)
        self.history += [{"role": "tool", "tool_call_id": at, "content": self.content(result)}
                         for at, _, result in self.results_of(answer, results)]

    def content(self, text):
        return text

    def overflow(self, refused):
        return re.search(r"exceeds the available context size|maximum context length is \d+ tokens",
                         refused.error["message"])


class QwenCode(OpenCode):
    """The same with parts for every content, null where there is none, and what it knows of
    itself.
    """

    def begin(self):
        self.history = [{
            "role": "system",
            "content": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}]
        }]

    def said(self, text):
        self.history.append({
            "role": "user", "content": [{"type": "text", "text": PLACE},
                                        {"type": "text", "text": text}]
        })

    def body(self, tools=True):
        body = super().body(tools)
        del body["max_tokens"]
        return body | {
            "metadata": {"sessionId": "s", "promptId": f"p{len(self.history)}"},
            "vl_high_resolution_images": True,
        }

    def content(self, text):
        return [{"type": "text", "text": text}] if text else None

    def keep(self, answer, results):
        super().keep(answer, results)
        for message in self.history:
            if message["role"] == "assistant" and not message["content"]:
                message["content"] = None


class Codex(Agent):
    """Responses, streamed, not stored: its items go back as they came, without their ids; tools of
    several types.
    """
    path = "/v1/responses"

    def begin(self):
        self.history = [
            self.message("developer", "Nobody is asked before a program is run."),
            self.message("user", PLACE),
        ]

    @staticmethod
    def message(role, text):
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}

    def said(self, text):
        self.history.append(self.message("user", text))

    @staticmethod
    def tool(name, what, schema):
        return {
            "type": "function", "name": name, "description": what, "strict": False,
            "parameters": schema
        }

    def body(self, tools=True):
        offered = [*(self.tool(*one) for one in TOOLS),
                    {
                        "type": "custom", "name": "patch", "description": "Changes files.",
                        "format": {
                            "type": "grammar", "syntax": "lark", "definition": "start: /.+/"
                        }
                    },
                   {"type": "web_search", "external_web_access": False},
                    {
                        "type": "namespace", "name": SPACE, "description": "Tests.",
                        "tools": [self.tool(*SPACED)]
                    }]
        return {
            "model": "any", "instructions": SYSTEM, "input": self.history,
            "tools": offered if tools else [], "tool_choice": "auto", "parallel_tool_calls": True,
            "reasoning": {"effort": "medium", "summary": "auto"}, "store": False, "stream": True,
            "include": ["reasoning.encrypted_content"], "prompt_cache_key": "019a",
            "text": {"verbosity": "low"}, "client_metadata": {"turn": "1"}
        }

    def read(self, body):
        made, last = [], None
        for event in events(body):
            if event["type"] == "response.output_item.done":
                made.append(event["item"])
            last = event
        assert last["type"] == "response.completed", last
        usage = last["response"]["usage"]

        def of(kind, field, part):
            return "".join(one[part] for item in made if item["type"] == kind
                           for one in item.get(field) or [])
        calls = []
        for item in made:
            if item["type"] == "function_call":
                space, name = item.get("namespace"), item["name"]
                # Or it would not find the tool
                assert (space, name) in [(SPACE, SPACED[0]),
                                         *((None, tool[0]) for tool in TOOLS)], item
                calls.append(
                    (item["call_id"], f"{space}__{name}" if space else name, item["arguments"]))
        return Answer(of("message", "content", "text"), of("reasoning", "content", "text"), calls,
                      usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], made)

    def keep(self, answer, results):
        self.history += [
            {name: value for name, value in item.items() if name not in ("id", "status")}
            for item in answer.raw
        ]
        for at, name, result in self.results_of(answer, results):
            output = ([{"type": "input_text", "text": result}, {
                "type": "input_image", "image_url": PIXEL
            }, ] if name == "read_file" else result)
            self.history.append({"type": "function_call_output", "call_id": at, "output": output})

    def overflow(self, refused):
        return refused.error["code"] == "context_length_exceeded"


class ClaudeCode(Agent):
    """Messages, streamed: blocks with marks of what to cache that move, and a system prompt whose
    first line is never the same.
    """
    path = "/v1/messages?beta=true"
    headers = "anthropic-version: 2023-06-01\r\nanthropic-beta: interleaved-thinking-2025-05-14\r\n"

    def begin(self):
        self.asked = 0
        self.history = []

    def said(self, text):
        parts = ([{"type": "text", "text": text}] if self.history else
                 [{"type": "text", "text": PLACE}, {"type": "text", "text": text}])
        self.history.append({"role": "user", "content": parts})

    def body(self, tools=True):
        self.asked += 1
        for message in self.history:
            for block in message["content"]:
                block.pop("cache_control", None)
        self.history[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        offered = [{
            "name": name, "description": what,
            "input_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
        } for name, what, schema in FLAT]
        return {
            "model": "any", "max_tokens": 32000, "system": [{
                "type": "text",
                "text": f"x-anthropic-billing-header: cc_version=2; cch={self.asked:05x};"
            }, {"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
            "messages": self.history, "tools": offered if tools else [],
            "thinking": {"type": "adaptive"}, "metadata": {"user_id": "u"}, "context_management": {
                "edits": [{"type": "clear_thinking_20251015", "keep": "all"}]
            }, "output_config": {"effort": "medium"}, "stream": True
        }

    def read(self, body):
        blocks, arguments, usage, reason = [], {}, {}, None
        parts = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
        for event in events(body):
            kind = event["type"]
            if kind == "message_start":
                usage |= event["message"]["usage"]
            elif kind == "content_block_start":
                assert event["index"] == len(blocks), event
                blocks.append(dict(event["content_block"]))
            elif kind == "content_block_delta":
                delta = event["delta"]
                if delta["type"] == "input_json_delta":
                    arguments[event["index"]] = arguments.get(event["index"],
                                                              "") + delta["partial_json"]
                else:
                    blocks[event["index"]][parts[delta["type"]]] += delta[parts[delta["type"]]]
            elif kind == "message_delta":
                reason = event["delta"]["stop_reason"]
                usage |= event["usage"]
        for at, text in arguments.items():
            blocks[at]["input"] = json.loads(text)
        assert kind == "message_stop" and reason == ("tool_use" if arguments else "end_turn"), (
            kind, reason)

        def of(name, part):
            return "".join(block[part] for block in blocks if block["type"] == name)
        return Answer(
            of("text", "text"), of("thinking", "thinking"),
            [(blocks[at]["id"], blocks[at]["name"], text) for at, text in arguments.items()],
            usage["input_tokens"] + usage["cache_read_input_tokens"],
            usage["cache_read_input_tokens"], blocks)

    def keep(self, answer, results):
        self.history.append({"role": "assistant", "content": answer.raw})
        if answer.calls:
            self.history.append({
                "role": "user", "content": [{
                    "type": "tool_result", "tool_use_id": at, "is_error": not result,
                    "content": [{"type": "text", "text": result}] if result else ""
                } for at, _, result in self.results_of(answer, results)]
            })

    def overflow(self, refused):
        return refused.error["type"] == "invalid_request_error" and re.match(
            r"prompt is too long: \d+ tokens > \d+ maximum", refused.error["message"])


class SmolAgents(OpenCode):
    """Chat completions, whole: a call at every step, since it is demanded; the one of final_answer
    is the last.
    """

    def body(self, tools=True):
        body = super().body(tools)
        del body["stream"], body["stream_options"], body["max_tokens"]
        done = {
            "type": "function", "function": {
                "name": "final_answer", "description": "The answer.", "parameters": {
                    "type": "object",
                    "properties": {"answer": {"type": "string",
                                              "nullable": True}}, "required": ["answer"]
                }
            }
        }
        return body | {
            "tools": [*body["tools"], done], "tool_choice": "required",
            "stop": ["Observation:", "Calling tools:"]
        }

    def read(self, body):
        reply = json.loads(body)
        message = reply["choices"][0]["message"]
        calls = [(call["id"], call["function"]["name"], call["function"]["arguments"])
                 for call in message.get("tool_calls") or []]
        return Answer(message["content"] or "",
                      message.get("reasoning_content") or "", calls,
                      reply["usage"]["prompt_tokens"],
                      reply["usage"]["prompt_tokens_details"]["cached_tokens"], None)

    def keep(self, answer, results):
        """Of calls and results it makes text."""
        shown = json.dumps(
            [{"id": at, "function": {"name": name, "arguments": json.loads(arguments)}}
             for at, name, arguments in answer.calls])
        self.history.append(
            {"role": "assistant", "content": [{"type": "text", "text": f"Calling tools:\n{shown}"}]}
        )
        # As a tool's message, not as the user's: to the scripted model a message of the user's is
        # another task.
        self.history += [
            {
                "role": "tool",
                "tool_call_id": at,
                "content": [{"type": "text", "text": f"Observation:\n{result}"}],
            }
            for at, _, result in self.results_of(answer, results)
        ]


PROGRAMS = [OpenCode, QwenCode, Codex, ClaudeCode]


class AgentsReplayTest(unittest.TestCase):
    def setUp(self):
        self.folder = programs.folder_of(self)
        self.model = str(self.folder / "scripted.gguf")
        scripted_model.write(self.model)

    def server(self, *options, context=8192):
        return Server(OPTIONS.larder, self.model, "-c", str(context), "--slots", "2", *options)

    def has_done_it(self, answers, program):
        self.assertEqual([[name for _, name, _ in answer.calls] for answer in answers], CALLS,
                         program)
        self.assertEqual(answers[0].text.strip(), "I will read it.", program)
        self.assertEqual(answers[0].thought.strip(), "A test fails, so the sum is read first.",
                         program)
        self.assertEqual(json.loads(answers[0].calls[0][2]),
                         {"path": "src/sum.py", "offset": 2**64 - 1}, program)
        self.assertEqual(
            json.loads(answers[1].calls[0][2])["content"],
            "def total(a, b):\n    return a + b  # \"<ü>\"\n", program)
        self.assertEqual(answers[-1].text, SCRIPTS["repair"][-1], program)
        ids = [at for answer in answers for at, _, _ in answer.calls]
        self.assertEqual(len(set(ids)), len(ids), program)

    def test_a_task_to_its_end(self):
        with self.server() as server:
            for program in PROGRAMS:
                agent = program()
                answers = agent.work(server, RESULTS)
                self.has_done_it(answers, program)
                # But for the opener of the script, a prompt's last token
                for before, answer in zip(answers, answers[1:]):
                    self.assertGreaterEqual(answer.cached, before.prompt - 1, program)
                # The user goes on, with another task
                agent.said("And which files are there? #steps")
                answer = agent.turn(server)
                self.assertEqual([name for _, name, _ in answer.calls], ["shell"], program)
                self.assertGreaterEqual(answer.cached, answers[-1].prompt - 1, program)

    def test_a_step_is_one_call_where_calls_are_demanded(self):
        with self.server() as server:
            answers = SmolAgents("What files are there? #steps").work(server, RESULTS, turns=2)
        self.assertEqual([[call[1:] for call in answer.calls] for answer in answers],
                         [[("shell", '{"command": ["ls"]}')],
                          [("final_answer", '{"answer": "There is one file."}')]])
        self.assertEqual([answer.text for answer in answers], ["", ""])

    def test_all_at_once_say_what_each_says_alone(self):
        with self.server("--parallel",
                         "3") as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
            tasks = [(program, pool.submit(program().work, server, RESULTS))
                     for program in PROGRAMS]
            titles = [
                pool.submit(program("A title for this. #plain").turn, server, tools=False)
                for program in PROGRAMS
            ]
            for program, task in tasks:
                self.has_done_it(task.result(), program)
            for title in titles:
                self.assertEqual(title.result().text, SCRIPTS["plain"][0])

    def broken_off(self, server, agent):
        """What has come when the program goes away in the middle of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=LIMIT_S)
        connection.request("POST", agent.path, json.dumps(agent.body()),
                           {"Content-Type": "application/json"})
        reply = connection.getresponse()
        self.assertEqual(reply.status, 200)
        body = b""
        while len(body) < 20000:
            body += reply.read1()
        connection.close()
        return body

    def test_a_turn_that_is_broken_off(self):
        with self.server(context=65536) as server:
            for program in PROGRAMS:
                agent = program("Tell me of the hills. #endless")
                body = self.broken_off(server, agent)
                server.idle()
                said = "".join(
                    re.findall(rb'"(?:content|delta|text)":"([^"]*)"', body)[i].decode()
                    for i in range(5))
                self.assertEqual(said, ENDLESS[:len(said)], program)
                agent.said("<turn_aborted>\nThe user broke the last turn off.\n</turn_aborted>")
                agent.said(TASK)
                answers = agent.work(server, RESULTS)
                self.has_done_it(answers, program)
                self.assertGreater(answers[0].cached, len(SYSTEM), program)

    def test_a_full_context_is_known_and_the_conversation_made_shorter(self):
        long = RESULTS | {"read_file": "def other(a, b):\n    return a\n" * 60}
        bystander = OpenCode()
        with self.server("--parallel", "3", context=3200) as server:
            beside = bystander.turn(server)
            for program in PROGRAMS:
                agent = program()
                with self.assertRaises(Refused) as caught:
                    agent.work(server, long)
                self.assertEqual(caught.exception.status, 400, program)
                self.assertTrue(agent.overflow(caught.exception), caught.exception)
                # What it tells the model of the conversation is a summary, asked for without the
                # long results
                agent.begin()
                agent.said("A task was begun. " + SHORTER)
                summary = agent.turn(server, tools=False)
                self.assertEqual(summary.text, SCRIPTS["plain"][0], program)
                agent.begin()
                agent.said(f"{summary.text}\n\n{TASK}")
                self.has_done_it(agent.work(server, RESULTS), program)
            bystander.keep(beside, RESULTS)
            after = bystander.turn(server)
            self.assertEqual([name for _, name, _ in after.calls], CALLS[1])

    def test_servers_that_end(self):
        """By SIGTERM or SIGKILL between turns; and within one, whose request is sent again."""
        for program in PROGRAMS:
            kept = ["--cache-dir", str(self.folder / program.__name__)]
            agent, answers = program(), []
            while not answers or answers[-1].calls:
                with self.server(*kept) as server:
                    answers.append(agent.turn(server))
                    agent.keep(answers[-1], RESULTS)
                    if len(answers) % 2 == 0:
                        server.kill()
            self.has_done_it(answers, program)
            # A server that is killed may not have written the last chunks
            for before, answer in list(zip(answers, answers[1:]))[::2]:
                self.assertGreaterEqual(answer.cached, (before.prompt - 1) // CHUNK * CHUNK,
                                        program)
            agent = program("Tell me of the hills. #endless")
            for _ in range(2):
                with self.server(*kept, context=65536) as server:
                    self.broken_off(server, agent)
                    server.kill()


if __name__ == "__main__":
    OPTIONS = programs.options_of_tests(programs.parser(__doc__, "larder"))
    unittest.main()
