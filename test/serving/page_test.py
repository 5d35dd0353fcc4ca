#!/usr/bin/env python3
"""The page at / in headless Chromium, against a stub with a large machine and hostile answers.

Usage: page_test.py [--larder PROGRAM --model FILE] [--shots FOLDER] [unittest arguments]
--larder: also against `larder serve`.
--shots keeps screenshots in two widths, light and dark.
"""

import argparse
import base64
import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import browser
import stub_server
from larder_testing import programs
from larder_testing.server import Server

BROWSER = browser.find()
OPTIONS = argparse.Namespace(larder=None, model=None, shots=None)
HOSTILE = [
    "<img src=x onerror=\"window.hit=1\">", "<script>window.hit=2</script>",
    "</p></article><h1 id=owned>hi</h1>", "<svg/onload=window.hit=3>", "javascript:window.hit=4 ",
    "\u202e\u0000\U0001f600 &amp;&lt;b&gt;"
]

ASK = "document.getElementById('prompt').focus()"
LAST = "[...document.querySelectorAll('.message.assistant')].at(-1)"
IDLE = "document.getElementById('send').hidden === false"


class PageCase(unittest.TestCase):
    """What both tests do with the page."""

    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser(BROWSER)
        cls.addClassCleanup(cls.browser.close)

    def open(self, url):
        self.origin = url
        self.browser.open(url + "/")
        self.browser.until("document.querySelectorAll('.socket').length > 0 && "
                           "document.getElementById('state').textContent === 'serving'")

    def ask(self, text, wait=True):
        self.browser.run(ASK)
        self.browser.type(text)
        self.browser.press("Enter")
        if wait:
            self.browser.until(f"{IDLE} && {LAST}")

    def fill(self, field, text):
        """What a user does with a field of the tools' panel."""
        self.browser.run("document.getElementById('tools-panel').open = true;"
                         f" document.getElementById('{field}').value = {json.dumps(text)}; "
                         f"document.getElementById('{field}').dispatchEvent(new Event('change'))")

    def check_quiet(self, expected=()):
        """No error in the console but those expected, and no request to anywhere else."""
        problems = [p for p in self.browser.problems if not any(e in p for e in expected)]
        self.assertEqual(problems, [])
        elsewhere = [u for u in self.browser.urls if not u.startswith((self.origin + "/", "data:"))]
        self.assertEqual(elsewhere, [])

    def shoot(self, name):
        if OPTIONS.shots:
            Path(OPTIONS.shots).mkdir(parents=True, exist_ok=True)
            (Path(OPTIONS.shots) / f"{name}.png").write_bytes(
                base64.b64decode(self.browser.screenshot()))


class PageTest(PageCase):
    def setUp(self):
        self.stub = stub_server.StubServer()
        self.addCleanup(self.stub.server_close)
        self.addCleanup(self.stub.shutdown)
        self.open(self.stub.url)

    def test_draws_the_machine_as_it_is(self):
        b = self.browser
        b.until("document.querySelectorAll('.slot.decode').length > 0")
        self.assertEqual(b.run("document.querySelectorAll('.server').length"), 2)
        self.assertEqual(b.run("document.querySelectorAll('.socket').length"), 3)
        self.assertEqual(b.run("document.querySelectorAll('.group').length"), 18)
        self.assertEqual(b.run("document.querySelectorAll('.socket .core').length"), 18 * 8)
        self.assertEqual(b.run("document.querySelectorAll('.socket .core.used').length"),
                         16 * 7 + 2 * 8)
        self.assertEqual(b.run("document.querySelectorAll('.socket .core.attends').length"), 2 * 8)
        self.assertEqual(b.run("document.querySelectorAll('.fill.over').length"), 2)
        self.assertEqual(b.run("document.querySelectorAll('.layers .here').length"),
                         stub_server.LAYERS + 2)
        self.assertEqual(b.run("document.querySelectorAll('.slot').length"), stub_server.SLOTS)
        text = b.run("document.getElementById('machine').innerText")
        for expected in ("layers 0–13", "layers 14–27", "lm_head", "96.2 % resident",
                         "KV cache of 32 slots", "rdma"):
            self.assertIn(expected, text)
        self.assertGreater(b.run("document.querySelectorAll('#histogram .column').length"), 5)
        self.assertRegex(b.run("document.getElementById('histogram').ariaLabel"),
                         "361 requests, median 1.[0-9]+ ms")
        labels = b.run("[...document.querySelectorAll('.column-label')].map(e => e.textContent)")
        self.assertEqual(labels[:7],
                         ["150 µs", "200 µs", "300 µs", "500 µs", "700 µs", "1 ms", "1.5 ms"])
        # Of the last second, not since the start.
        b.until(
            "document.querySelector('.facts').textContent.includes('step 1.17 ms · 3.3 % waiting')")
        before = b.run("document.getElementById('rate').textContent")
        b.until(f"document.getElementById('rate').textContent !== '{before}'")
        self.check_quiet()

    def test_chat_streams_and_remembers(self):
        self.stub.pieces, self.stub.pause_s = ["one ", "two ", "three ", "four"], 0.15
        self.ask("count", wait=False)
        # In between
        self.browser.until(f"{LAST}?.querySelector('.text').textContent === 'one two '")
        self.browser.until(IDLE)
        self.assertEqual(self.browser.run(f"{LAST}.querySelector('.text').textContent"),
                         "one two three four")
        self.assertRegex(self.browser.run(f"{LAST}.querySelector('footer').textContent"),
                         r"4 tokens · first after .* ms · 1,235 tokens/s")
        self.stub.pause_s = 0
        self.ask("again")
        path, request = self.stub.requests[-1]
        self.assertEqual(path, "/v1/chat/completions")
        self.assertEqual([m["role"] for m in request["messages"]], ["user", "assistant", "user"])
        self.assertEqual(request["messages"][1]["content"], "one two three four")
        self.assertTrue(request["stream"])
        self.check_quiet()

    def test_stop_button_and_escape_end_the_stream(self):
        for stop in (lambda: self.browser.run("document.getElementById('stop').click()"),
                     lambda: self.browser.press("Escape")):
            self.stub.gone.clear()
            self.stub.pieces, self.stub.pause_s = ["word "] * 2000, 0.01
            self.ask("go", wait=False)
            self.browser.until(f"{LAST}?.querySelector('.text').textContent.length > 20")
            stop()
            self.browser.until(
                f"{IDLE} && {LAST}.querySelector('footer').textContent.includes('stopped')")
            self.assertTrue(self.stub.gone.wait(10), "the server never saw the client leave")
        self.check_quiet()

    def test_hostile_output_is_text(self):
        self.stub.pieces = HOSTILE
        self.stub.plan["model"]["name"] = "<img src=x onerror=window.hit=5>"
        self.stub.plan["notes"] = ["<script>window.hit=6</script>"]
        self.stub.plan["sockets"][0]["name"] = "\"><script>window.hit=7</script>"
        self.open(self.stub.url)
        self.ask("<b onmouseover=window.hit=8>mine</b>")
        text = self.browser.run(f"{LAST}.querySelector('.text').textContent")
        self.assertEqual(text, "".join(HOSTILE))
        self.assertIsNone(self.browser.run("window.hit ?? null"))
        self.assertIsNone(self.browser.run("document.getElementById('owned')?.id ?? null"))
        self.assertEqual(
            self.browser.run("document.querySelectorAll('main img, main script, main b').length"),
            0)
        self.check_quiet()

    def test_errors_are_shown(self):
        self.stub.refuse = (400, "the prompt has 9000 tokens, the context 4096 <i>")
        self.ask("too long")
        self.assertEqual(self.browser.run(f"{LAST}.querySelector('[role=alert]').textContent"),
                         self.stub.refuse[1])
        self.stub.refuse = None
        self.stub.pieces, self.stub.whole = ["half",
                                             {"error": {"message": "a socket was lost"}}], False
        self.ask("breaks in the middle")
        self.assertEqual(self.browser.run(f"{LAST}.querySelector('.text').textContent"), "half")
        self.assertEqual(self.browser.run(f"{LAST}.querySelector('[role=alert]').textContent"),
                         "a socket was lost")
        self.stub.pieces = ["cut"]
        self.ask("ends without an end")
        self.assertIn("closed before",
                      self.browser.run(f"{LAST}.querySelector('[role=alert]').textContent"))
        self.check_quiet(expected=["400 (Bad Request)"])

    def test_a_model_without_chat_template_continues_text(self):
        self.stub.plan = stub_server.plan(servers=1, chat_format=None)
        self.open(self.stub.url)
        self.ask("Once upon")
        path, request = self.stub.requests[-1]
        self.assertEqual((path, request["prompt"]), ("/v1/completions", "Once upon"))
        self.assertEqual(self.browser.run(f"{LAST}.querySelector('.text').textContent"),
                         "Hello there")

    def test_thoughts_and_calls_go_on_with_results(self):
        b = self.browser
        self.fill("tools", '{"name": "get_weather", "parameters": {"type": "object"}}')
        self.stub.answers = [[
            stub_server.thought("Which "),
            stub_server.thought("town?"), "I look.",
            *stub_server.call(0, "get_weather", '{"city":"Bern"}', "call_1"),
            *stub_server.call(1, "get_weather", '{"city":"<b>"}', "call_2")
        ], ["It ", "rains."]]
        self.ask("weather?")
        self.assertEqual(b.run(f"{LAST}.querySelector('.thought p').textContent"), "Which town?")
        self.assertFalse(b.run(f"{LAST}.querySelector('.thought').open"))
        self.assertEqual(b.run(f"{LAST}.querySelector('.text').textContent"), "I look.")
        self.assertEqual(
            b.run(f"[...{LAST}.querySelectorAll('.call pre')].map(e =>"
                  " JSON.parse(e.textContent).city)"), ["Bern", "<b>"],
        )
        self.assertIn("\n  ", b.run(f"{LAST}.querySelector('.call pre').textContent"))
        self.shoot("calls")
        # By keyboard: the first result's field has the focus, Enter goes to the next one, then on.
        self.assertEqual(b.run("document.activeElement.closest('label').textContent"),
                         "Result of get_weather ")
        b.type("rain")
        b.press("Enter")
        b.type("sun")
        b.press("Enter")
        b.until(f"{LAST}.querySelector('.text').textContent === 'It rains.' && {IDLE}")
        path, request = self.stub.requests[-1]
        self.assertEqual(request["tools"][0]["function"]["name"], "get_weather")
        self.assertEqual(request["tool_choice"], "auto")
        question, called, *results = request["messages"]
        self.assertEqual((question["role"], called["role"], called["content"]),
                         ("user", "assistant", "I look."))
        self.assertEqual(called["reasoning_content"], "Which town?")
        self.assertEqual([c["function"]["arguments"] for c in called["tool_calls"]],
                         ['{"city":"Bern"}', '{"city":"<b>"}'])
        self.assertEqual(results, [{"role": "tool", "tool_call_id": "call_1", "content": "rain"},
                                   {"role": "tool", "tool_call_id": "call_2", "content": "sun"}])
        self.assertEqual(b.run("document.activeElement.id"), "prompt")
        self.check_quiet()

    def test_calls_without_results_are_forgotten(self):
        self.stub.answers = [stub_server.call(0, "f", "{}", "call_1"), ["fine"]]
        self.ask("one")
        self.ask("two")
        self.assertEqual(self.stub.requests[-1][1]["messages"],
                         [{"role": "user", "content": "two"}])
        self.assertTrue(self.browser.run("document.querySelector('.call textarea').disabled"))

    def test_a_schema_constrains_and_the_answer_is_laid_out(self):
        self.fill("schema", '{"type": "object"}')
        self.stub.pieces = ['{"answer"', ":42}"]
        self.ask("how many?")
        form = self.stub.requests[-1][1]["response_format"]
        self.assertEqual(
            (form["type"], form["json_schema"]["schema"], form["json_schema"]["strict"]),
            ("json_schema", {"type": "object"}, True))
        self.assertEqual(self.browser.run(f"{LAST}.querySelector('.text').textContent"),
                         '{\n  "answer": 42\n}')
        self.shoot("schema")
        self.ask("again")  # what the model wrote is remembered, not its layout
        self.assertEqual(self.stub.requests[-1][1]["messages"][1]["content"], '{"answer":42}')
        self.check_quiet()

    def test_wrong_tools_and_schemas_are_shown_beside_their_fields(self):
        b = self.browser
        for field, text, message in (("tools", "[{]", "JSON"),
                                     ("tools", "[{}]", "tool 1 has no name"), ("schema", "[]",
                                                                               "JSON object")):
            before = len(self.stub.requests)
            self.fill(field, text)
            self.ask("hi")
            self.assertIn(message, b.run(f"document.getElementById('{field}-error').textContent"))
            self.assertEqual(b.run(f"document.getElementById('{field}').ariaInvalid"), "true")
            self.assertEqual(b.run("document.activeElement.id"), field)
            self.assertEqual(len(self.stub.requests), before)
            self.fill(field, "")
        self.stub.refuse = (
            400, "response_format.json_schema.schema/properties/a: type must be a string",
            "response_format")
        self.fill("schema", '{"properties": {"a": {"type": 7}}}')
        self.ask("hi")
        self.assertEqual(b.run("document.getElementById('schema-error').textContent"),
                         self.stub.refuse[1])
        self.shoot("wrong-schema")
        self.check_quiet(expected=["400 (Bad Request)"])

    def test_settings_reach_the_request(self):
        self.browser.run("document.getElementById('settings').open = true")
        for field, value in (("system", "be brief"), ("max-tokens", "7"), ("temperature", "0.5"),
                             ("seed", "3")):
            self.browser.run(f"document.getElementById('{field}').value = '{value}'")
        self.ask("hi")
        request = self.stub.requests[-1][1]
        self.assertEqual((request["max_tokens"], request["temperature"], request["seed"]),
                         (7, 0.5, 3))
        self.assertEqual(request["messages"][0], {"role": "system", "content": "be brief"})

    def test_keyboard_reaches_everything(self):
        seen = set()
        self.browser.run("document.activeElement.blur()")
        for _ in range(12):
            self.browser.press("Tab")
            seen.add(
                self.browser.run("document.activeElement.id || document.activeElement.tagName + "
                                 "document.activeElement.className"))
        for expected in ("prompt", "send", "clear", "log", "SUMMARY", "Askip"):
            self.assertIn(expected, seen)

    def test_fits_narrow_and_wide_light_and_dark(self):
        self.ask("hello")
        for width in (360, 400, 800, 1400):
            for dark in (False, True):
                self.browser.show(width, 900, dark)
                self.browser.run("new Promise(requestAnimationFrame)")
                self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"),
                                     width)
                outside = self.browser.run(
                    "[...document.querySelectorAll('main *')].filter(e => !e.closest('.hidden') && "
                    "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.className || "
                    "e.tagName)")
                self.assertEqual(outside, [], width)
                self.shoot(f"{width}-{'dark' if dark else 'light'}")
        self.browser.show(1400, 900, False)


class ServedPageTest(PageCase):
    """The same page from the program itself, with the model of this repository."""

    def setUp(self):
        if not OPTIONS.larder:
            self.skipTest("no --larder")

    def test_chat_and_machine_of_a_real_server(self):
        with Server(OPTIONS.larder, OPTIONS.model, "--parallel", "3") as server:
            self.open(server.url)
            b = self.browser
            self.assertGreaterEqual(b.run("document.querySelectorAll('.socket .core.used').length"),
                                    1)
            self.assertEqual(b.run("document.querySelectorAll('.slot').length"), 3)
            b.run("document.getElementById('temperature').value = '0'")
            b.run("document.getElementById('max-tokens').value = '60'")
            self.ask("One day, a little fox")
            text = b.run(f"{LAST}.querySelector('.text').textContent")
            self.assertGreater(len(text), 40)
            self.assertRegex(b.run(f"{LAST}.querySelector('footer').textContent"), "[0-9]+ tokens")
            b.until("document.getElementById('tpot-median').textContent.includes('s')")
            self.assertGreater(b.run("document.querySelectorAll('#histogram .column').length"), 0)
            b.until("document.querySelector('.facts').textContent.includes('step')")
            self.shoot("served")
            self.check_quiet()

    def test_a_key_is_asked_for_and_kept(self):
        with Server(OPTIONS.larder, OPTIONS.model, "--api-key", "open sesame") as server:
            self.origin = server.url
            b = self.browser
            b.open(server.url + "/")
            b.until("document.getElementById('trouble')?.textContent.includes('key')")
            b.run("document.getElementById('settings').open = true")
            b.run("document.getElementById('key').focus()")
            b.type("open sesame")
            b.press("Tab")
            b.until("document.querySelectorAll('.socket').length > 0")
            self.ask("One day")
            self.assertGreater(len(b.run(f"{LAST}.querySelector('.text').textContent")), 10)
            self.check_quiet(expected=["401 (Unauthorized)"])


if __name__ == "__main__":
    parser = programs.parser(__doc__)
    for option in ("larder", "model", "shots"):
        parser.add_argument(f"--{option}")
    OPTIONS = programs.options_of_tests(parser)
    if not BROWSER:
        programs.skip("chromium is not installed")
    unittest.main()
