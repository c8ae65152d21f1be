#!/usr/bin/env python3
"""A server of eight workers as its users meet it: processes, sockets, streams, bad requests."""

import concurrent.futures
import http.client
import json
import time
import unittest

from support import ROOT, SLOW, Server, alive, listening_addresses, wait_until

GOLDEN = json.loads((ROOT / "models/golden/generation.json").read_text())


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(tp=8)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, "SIGTERM ends the server with status 0"
        left = [pid for pid in cls.server.seen if alive(pid)]
        assert not left, f"processes left behind: {left}"

    def test_eight_workers_each_hold_their_share(self):
        self.assertEqual(sorted(self.server.workers()), list(range(8)))
        names = list(self.server.processes().values())
        self.assertEqual(names.count("copse-coordinator"), 1)
        self.assertEqual(names.count("copse-gateway"), 1)
        text = self.server.request("GET", "/metrics")[1]
        sharded = [
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith("copse_rank_sharded_bytes{")
        ]
        self.assertEqual(len(sharded), 8)
        for part in sharded:
            self.assertAlmostEqual(part / sum(sharded), 1 / 8, delta=0.01)

    def test_only_the_gateway_listens_and_on_loopback(self):
        found = listening_addresses([self.server.process.pid, *self.server.processes()])
        self.assertEqual(found, {("127.0.0.1", self.server.port)})

    def test_golden_prompts_stream_the_golden_text(self):
        for case in GOLDEN[1:4]:
            answer = self.server.complete(case["prompt_ids"], max_tokens=96, ignore_eos=True)
            streamed, finish, tokens = self.server.stream(
                case["prompt_ids"], max_tokens=96, ignore_eos=True
            )
            self.assertEqual(streamed, answer["choices"][0]["text"])
            self.assertEqual(finish, "length")
            self.assertEqual(tokens, 96)

    def test_sixteen_at_once_give_what_each_gives_alone(self):
        prompts = [case["prompt_ids"][: 40 + i] for i, case in enumerate(GOLDEN * 2)][:16]
        alone = [self.server.complete(p, max_tokens=24)["choices"][0]["text"] for p in prompts]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            together = pool.map(lambda p: self.server.stream(p, max_tokens=24)[0], prompts)
            self.assertEqual(list(together), alone)

    def test_a_closed_stream_stops_its_request(self):
        before = self.server.metric("copse_generation_tokens_total")
        body = {"model": "sapling", "prompt": "import os\n", "stream": True, "max_tokens": 3000}
        body |= {"ignore_eos": True, "temperature": 0}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        connection.request("POST", "/v1/completions", json.dumps(body).encode())
        response = connection.getresponse()
        for _ in range(6):
            response.readline()
        response.close()
        connection.close()
        running = lambda: self.server.metric("copse_num_requests_running")
        wait_until(lambda: running() == 0, 3, "the request was cancelled")
        time.sleep(0.5)
        made = self.server.metric("copse_generation_tokens_total") - before
        self.assertLess(made, 1000, "it was stopped, not finished")
        wait_until(
            lambda: self.server.metric("copse_kv_cache_usage_perc") == 0, 3, "its pages came back"
        )

    def test_bad_requests_are_4xx_that_name_the_field(self):
        post = lambda body: self.server.request("POST", "/v1/completions", body)
        good = {"model": "sapling", "prompt": "x"}
        cases = [
            ({**good, "max_tokens": 0}, 400, "max_tokens"),
            ({**good, "temperature": -1}, 400, "temperature"),
            ({**good, "prompt": [1, 4096]}, 400, "prompt"),
            ({**good, "prompt": [1, -1]}, 400, "prompt"),
            ({**good, "model": "other"}, 404, "model"),
            ({"model": "sapling"}, 400, "prompt"),
            ({**good, "top_p": 0}, 400, "top_p"),
            ({**good, "n": 2**31}, 400, "n"),
            ({**good, "stop": ["a"] * 1000}, 400, "stop"),
            ({**good, "prompt": "x" * 1_000_000, "stream": True}, 400, "prompt"),
            (b"{not json", 400, None),
            (b"", 400, None),
            (b'{"model":"sapling","prompt":"x","temperature":NaN}', 400, None),
        ]
        for body, status, field in cases:
            with self.subTest(field=field, body=str(body)[:60]):
                got, answer, _ = post(body)
                self.assertEqual(got, status, answer)
                self.assertEqual(set(answer), {"error"})
                self.assertLessEqual({"message", "type", "param", "code"}, set(answer["error"]))
                if field is not None:
                    self.assertEqual(answer["error"]["param"], field)
        self.assertEqual(self.server.request("POST", "/v1/nothing", {})[0], 404)
        self.assertTrue(self.server.complete("import os", max_tokens=4)["choices"][0]["text"])

    def test_health_answers_while_sixteen_of_the_largest_prompts_are_in_work(self):
        prompt = "ab cd " * ((4 << 20) // 6 - 20)
        body = json.dumps({"model": "sapling", "prompt": prompt}).encode()
        post = lambda: self.server.request("POST", "/v1/completions", body)[0]
        slowest = 0.0
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            running = [pool.submit(post) for _ in range(16)]
            while not all(one.done() for one in running):
                start = time.monotonic()
                self.assertEqual(self.server.request("GET", "/health")[0], 200)
                slowest = max(slowest, time.monotonic() - start)
        self.assertEqual([one.result() for one in running], [400] * 16)
        # About 10 ms on an idle machine, most of it this client's; a second when the gateway's
        # loop itself did the work.
        self.assertLess(slowest, 0.2 * SLOW)

    def test_ten_runs_of_each_mode_give_one_text(self):
        texts = set()
        for mode in ("none", "chain", "tree"):
            for _ in range(10):
                answer = self.server.complete("class TestCase(", max_tokens=32, draft=mode)
                texts.add(answer["choices"][0]["text"])
        self.assertEqual(len(texts), 1)

    def test_chat_streams_roles_and_content(self):
        messages = [{"role": "user", "content": "What does the function join in posixpath do?"}]
        body = {"model": "sapling", "messages": messages, "temperature": 0, "max_tokens": 48}
        status, answer, _ = self.server.request("POST", "/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        message = answer["choices"][0]["message"]
        self.assertEqual(message["role"], "assistant")
        self.assertGreater(len(message["content"]), 10)
        self.assertNotIn("<|", message["content"])


if __name__ == "__main__":
    unittest.main()
