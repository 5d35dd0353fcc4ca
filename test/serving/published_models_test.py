#!/usr/bin/env python3
"""Every endpoint's answers, whole and streamed, are what the vendors publish: each answer is read
by the models of OpenAI's, Anthropic's and Ollama's clients for Python in pydantic's strict mode,
where they are installed (pip install openai anthropic ollama), and by OpenAI's published
description of its API where LARDER_OPENAI_API names a copy (openapi.json) and jsonschema is
installed.

Usage: published_models_test.py --larder PROGRAM
"""
import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import programs, scripted_model
from larder_testing.server import Server
from larder_testing.waiting import until

OPTIONS = None
DESCRIPTION = os.environ.get("LARDER_OPENAI_API")
PERSON = {
    "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"]
}
CLOCK = {
    "name": "get_time", "description": "The time", "parameters": {
        "type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]
    }
}


def importing(name):
    try:
        return __import__(name)
    except ImportError:
        return None


def events_of(body):
    """The data of each event of a stream, as text; [DONE] is none."""
    lines = [
        line[len("data: ") :] for line in body.decode().splitlines() if line.startswith("data: ")
    ]
    return [line for line in lines if line != "[DONE]"]


class Recorded(unittest.TestCase):
    """What the endpoints answer, and how it is read."""

    @classmethod
    def setUpClass(cls):
        folder = programs.folder_of(cls)
        model = folder / "scripted.gguf"
        scripted_model.write(model)
        cls.server = Server(OPTIONS.larder, str(model), "-c", "8192", "--slots", "2", "--batch-dir",
                            str(folder / "batches"), "--pooling", "mean")
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def ask(self, path, body=None, method=None, status=200, headers=""):
        code, answer = self.server.post(path, b"" if body is None else body, headers, method or
                                        ("GET" if body is None else "POST"))
        self.assertEqual(code, status, answer)
        return answer

    def read(self, kind, text, what):
        """The text as an object of a client's, in strict mode."""
        import pydantic
        with self.subTest(what=what):
            try:
                return pydantic.TypeAdapter(kind).validate_json(text, strict=True)
            except pydantic.ValidationError as error:
                self.fail(f"{error}\n{text[:2000]}")

    @staticmethod
    def without_nulls(event):
        """A stream's event as text. Members that are null until the end on OpenAI's servers, too,
        as its guide says, but that its models or its description do not know as null, are left out,
        or have another value if they must be there."""
        instead = {"usage": None, "logprobs": None, "refusal": [], "finish_reason": "stop"}

        def cleaned(value):
            if isinstance(value, list):
                return [cleaned(part) for part in value]
            if not isinstance(value, dict):
                return value
            parts = {
                name: instead.get(name) if part is None else cleaned(part)
                for name, part in value.items()
            }
            return {
                name: part for name, part in parts.items()
                if part is not None or name not in instead
            }
        return json.dumps(cleaned(json.loads(event)))

    @staticmethod
    def chats():
        def chat(text, **more):
            return {
                "messages": [{"role": "system", "content": "Be brief."},
                             {"role": "user", "content": text}], "max_tokens": 200, **more
            }
        yield "plain", chat("hello")
        yield "two choices with log-probabilities", chat("hello", n=2, logprobs=True,
                                                         top_logprobs=2)
        yield "cut", chat("hello", max_tokens=2)
        yield "a stop string", chat("hello", stop=["short"])
        yield "a call", chat("#call", tools=[{"type": "function", "function": CLOCK}])
        yield "a forced call", chat("#call", tools=[{"type": "function", "function": CLOCK}],
                                    tool_choice="required")
        yield "three turns of calls", {
            "messages": [{"role": "user", "content": "#call"}, {
                "role": "assistant", "content": None, "tool_calls": [{
                    "id": "a", "type": "function",
                    "function": {"name": "get_time", "arguments": '{"zone":"UTC"}'}
                }]
            }, {"role": "tool", "tool_call_id": "a", "content": "12:00"}],
            "tools": [{"type": "function", "function": CLOCK}]
        }
        yield "thoughts", chat("#think")
        yield "a schema", chat(
            "#json", response_format={
                "type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}
            })


@unittest.skipUnless(importing("openai"), "openai is not installed (pip)")
class OpenAiModels(Recorded):
    def test_chat_completions(self):
        from openai.types.chat import ChatCompletion, ChatCompletionChunk
        for what, body in self.chats():
            self.read(ChatCompletion, self.ask("/v1/chat/completions", body), what)
            for options in ({}, {"stream_options": {"include_usage": True}}):
                events = events_of(
                    self.ask("/v1/chat/completions", {**body, "stream": True, **options}))
                self.assertGreater(len(events), 1)
                for event in events:
                    self.read(ChatCompletionChunk, event, what)

    def test_completions(self):
        from openai.types import Completion
        for what, more in (("plain", {}), ("log-probabilities", {"logprobs": 2}),
                           ("several", {"prompt": ["a", "b"], "n": 2})):
            body = {"prompt": "Once", "max_tokens": 3, "ignore_eos": True, **more}
            self.read(Completion, self.ask("/v1/completions", body), what)
            for event in events_of(self.ask("/v1/completions", {**body, "stream": True})):
                self.read(Completion, self.without_nulls(event), what)

    def test_embeddings(self):
        from openai.types import CreateEmbeddingResponse
        self.read(CreateEmbeddingResponse, self.ask("/v1/embeddings", {"input": ["a", "b"]}),
                  "floats")

    def test_responses(self):
        from openai.types.responses import Response, ResponseItemList, ResponseStreamEvent
        tool = {"type": "function", "strict": False, **CLOCK}
        for what, body in (("plain", {"input": "hello"}), ("cut", {
                "input": "hello", "max_output_tokens": 2
        }), ("thoughts", {"input": "#think"}), ("a call", {
                "input": "#call", "tools": [tool]
        }), ("a forced call",
             {"input": "#call", "tools": [tool], "tool_choice": "required"}), ("instructions", {
                 "input": [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}],
                 "instructions": "Be brief."
             }), ("a schema", {
                 "input": "#json",
                 "text": {"format": {"type": "json_schema", "name": "person", "schema": PERSON}}
             })):
            answer = self.read(Response, self.ask("/v1/responses", body), what)
            self.read(Response, self.ask(f"/v1/responses/{answer.id}"), what)
            self.read(ResponseItemList, self.ask(f"/v1/responses/{answer.id}/input_items"), what)
            events = [
                self.read(ResponseStreamEvent, event, what)
                for event in events_of(self.ask("/v1/responses", {**body, "stream": True}))
            ]
            self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
            self.assertIn(events[-1].type, ("response.completed", "response.incomplete"))

    def test_models(self):
        from openai.types import Model
        models = json.loads(self.ask("/v1/models"))
        self.assertEqual(models["object"], "list")
        for model in models["data"]:
            self.read(Model, json.dumps(model), "a model of the list")
            self.read(Model, self.ask(f"/v1/models/{model['id']}"), "a model")

    def test_files_and_batches(self):
        from openai.types import Batch, FileDeleted, FileObject
        line = {
            "custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": "hello"}]}
        }
        form = (
            '--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\n'
            'Content-Disposition: form-data; name="file";'
            f' filename="in.jsonl"\r\n\r\n{json.dumps(line)}\n\r\n--x--\r\n')
        file = self.read(
            FileObject,
            self.ask("/v1/files", form.encode(),
                     headers="Content-Type: multipart/form-data; boundary=x\r\n"), "a new file")
        for item in json.loads(self.ask("/v1/files"))["data"]:
            self.read(FileObject, json.dumps(item), "a file of the list")
        batch = self.read(
            Batch,
            self.ask(
                "/v1/batches", {
                    "input_file_id": file.id, "endpoint": "/v1/chat/completions",
                    "completion_window": "24h"
                }), "a new batch")
        self.read(Batch, self.ask(f"/v1/batches/{batch.id}"), "a batch")
        for item in json.loads(self.ask("/v1/batches"))["data"]:
            self.read(Batch, json.dumps(item), "a batch of the list")
        ended = until(
            lambda: (text := self.ask(f"/v1/batches/{batch.id}")) and json.loads(text)["status"] ==
            "completed" and text, 60, "the batch ends")
        output = self.read(Batch, ended, "a batch that has ended").output_file_id
        self.read(FileObject, self.ask(f"/v1/files/{output}"), "an output")
        self.read(FileDeleted, self.ask(f"/v1/files/{file.id}", method="DELETE"), "a deleted file")


@unittest.skipUnless(importing("anthropic"), "anthropic is not installed (pip)")
class AnthropicModels(Recorded):
    def test_messages(self):
        from anthropic.types import Message, RawMessageStreamEvent
        tool = {
            "name": CLOCK["name"], "description": CLOCK["description"],
            "input_schema": CLOCK["parameters"]
        }
        for what, text, more in (("plain", "hello", {}), ("a call", "#call", {
                "tools": [tool]
        }), ("cut", "hello", {"max_tokens": 2}), ("a forced call", "#call", {
                "tools": [tool], "tool_choice": {"type": "any"}
        }), ("a stop string", "hello", {"stop_sequences": ["short"]}), ("thoughts", "#think", {
                "thinking": {"type": "enabled", "budget_tokens": 1024}
        })):
            body = {
                "model": "m", "max_tokens": 2000, "messages": [{"role": "user", "content": text}],
                **more
            }
            self.read(Message, self.ask("/v1/messages", body), what)
            for event in events_of(self.ask("/v1/messages", {**body, "stream": True})):
                if json.loads(event)["type"] != "ping":
                    self.read(RawMessageStreamEvent, event, what)

    def test_the_others(self):
        from anthropic.types import ErrorResponse, MessageTokensCount
        self.read(
            MessageTokensCount,
            self.ask("/v1/messages/count_tokens",
                     {"model": "m", "messages": [{"role": "user", "content": "hello"}]}), "a count")
        self.read(ErrorResponse, self.ask("/v1/messages", {"messages": 5}, status=400), "an error")


@unittest.skipUnless(importing("ollama"), "ollama is not installed (pip)")
class OllamaModels(Recorded):
    def test_all(self):
        import ollama
        tools = [{"type": "function", "function": CLOCK}]
        for what, text, more in (("plain", "hello", {}), ("a call", "#call", {
                "tools": tools
        }), ("thoughts", "#think", {"think": True}), ("a schema", "#json", {"format": PERSON})):
            body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
            self.read(ollama.ChatResponse, self.ask("/api/chat", {**body, "stream": False}), what)
            for line in self.ask("/api/chat", body).decode().splitlines():
                self.read(ollama.ChatResponse, line, what)
        for line in self.ask("/api/generate",
                             {"model": "m", "prompt": "hello"}).decode().splitlines():
            self.read(ollama.GenerateResponse, line, "generate")
        self.read(ollama.EmbedResponse, self.ask("/api/embed", {"model": "m", "input": ["a", "b"]}),
                  "embed")
        self.read(ollama.EmbeddingsResponse,
                  self.ask("/api/embeddings", {"model": "m", "prompt": "a"}), "embeddings")
        name = json.loads(self.ask("/api/tags"))["models"][0]["model"]
        self.read(ollama.ShowResponse, self.ask("/api/show", {"model": name}), "show")
        self.read(ollama.ListResponse, self.ask("/api/tags"), "tags")
        self.read(ollama.ProcessResponse, self.ask("/api/ps"), "ps")


@unittest.skipUnless(DESCRIPTION,
                     "LARDER_OPENAI_API names no copy of OpenAI's description of its API")
@unittest.skipUnless(importing("jsonschema"), "jsonschema is not installed")
class OpenAiDescription(Recorded):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.description = json.loads(pathlib.Path(DESCRIPTION).read_text(encoding="utf-8"))

    def schema_of_event(self, kind):
        """The description of a Responses stream's event: a message about it says more than that
        none of fifty fits.
        """
        schemas = self.description["components"]["schemas"]
        names = [
            part["$ref"].rpartition("/")[2] for part in schemas["ResponseStreamEvent"]["anyOf"]
        ]
        return next(name for name in names
                    if schemas[name]["properties"]["type"].get("enum") == [kind])

    def check(self, schema, text, what):
        import jsonschema
        whole = {
            "$ref": f"#/components/schemas/{schema}", "components": self.description["components"]
        }
        errors = sorted(
            jsonschema.Draft202012Validator(whole).iter_errors(json.loads(text)),
            key=lambda error: len(error.path))
        for error in errors[:3]:
            best = jsonschema.exceptions.best_match([error])
            with self.subTest(what=what, schema=schema):
                self.fail(f"at {list(best.absolute_path)}: {best.message[:400]}")

    def test_chat_completions(self):
        for what, body in self.chats():
            self.check("CreateChatCompletionResponse", self.ask("/v1/chat/completions", body), what)
            for event in events_of(
                    self.ask("/v1/chat/completions",
                             {**body, "stream": True, "stream_options": {"include_usage": True}})):
                self.check("CreateChatCompletionStreamResponse", self.without_nulls(event), what)

    def test_the_others(self):
        self.check("CreateCompletionResponse",
                   self.ask("/v1/completions", {"prompt": "Once", "max_tokens": 3, "logprobs": 2}),
                   "completions")
        self.check("CreateEmbeddingResponse", self.ask("/v1/embeddings", {"input": ["a", "b"]}),
                   "embeddings")
        self.check("ListModelsResponse", self.ask("/v1/models"), "models")
        tool = {"type": "function", "strict": False, **CLOCK}
        for what, body in (("plain", {"input": "hello"}), ("thoughts", {"input": "#think"}),
                           ("a call", {"input": "#call", "tools": [tool]})):
            answer = self.ask("/v1/responses", body)
            self.check("Response", answer, what)
            self.check("ResponseItemList",
                       self.ask(f"/v1/responses/{json.loads(answer)['id']}/input_items"), what)
            for event in events_of(self.ask("/v1/responses", {**body, "stream": True})):
                self.check(self.schema_of_event(json.loads(event)["type"]),
                           self.without_nulls(event), what)
        self.check("TokenCountsResource", self.ask("/v1/responses/input_tokens",
                                                   {"input": "hello"}), "a count")


if __name__ == "__main__":
    OPTIONS = programs.options_of_tests(programs.parser(__doc__, "larder"))
    if not any(map(importing, ("openai", "anthropic", "ollama"))) and not (
        DESCRIPTION and importing("jsonschema")
    ):
        programs.skip(
            "none of openai, anthropic, ollama is installed (pip), and LARDER_OPENAI_API names no "
            "description")
    unittest.main()
