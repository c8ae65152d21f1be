#!/usr/bin/env python3
"""kill -9 of a worker inside a stream, over ranks and moments: the text does not change."""

import os
import signal
import unittest

from support import Server, alive, wait_until

PROMPT = "import os\n\ndef walk("
TOKENS = 160


def segments():
    return set(os.listdir("/dev/shm"))


class Recovery(unittest.TestCase):
    def kill_during_stream(self, server, rank, chunk):
        """The stream's text when worker `rank` is killed after `chunk` chunks."""
        workers = server.workers()
        killed = []

        def on_chunk(count):
            if count >= chunk and not killed:
                os.kill(workers[rank], signal.SIGKILL)
                killed.append(workers[rank])

        answer = server.stream(PROMPT, on_chunk, max_tokens=TOKENS, ignore_eos=True)
        self.assertTrue(killed, "the stream ended before the kill")
        return answer

    def test_twenty_kills_lose_no_token(self):
        shm_before = segments()
        seen = {}
        expected = None
        # Three failures in ten minutes end a group, so a server lives for two kills.
        for first in range(0, 20, 2):
            with Server(tp=8) as server:
                if expected is None:
                    expected = server.stream(PROMPT, max_tokens=TOKENS, ignore_eos=True)
                for kill in (first, first + 1):
                    rank, chunk = kill * 3 % 8, 1 + kill * 7 % 30
                    with self.subTest(kill=kill, rank=rank, chunk=chunk):
                        got = self.kill_during_stream(server, rank, chunk)
                        self.assertEqual(got, expected)
                        server.wait_ready()
                        self.assertEqual(len(server.workers()), 8)
                self.assertIn(
                    f"rank {(first + 1) * 3 % 8}", server.log_path.read_text(), "the rank is named"
                )
                seen = server.seen
            self.assertEqual([pid for pid in seen if alive(pid)], [])
        self.assertEqual(segments() - shm_before, set(), "shared memory segments left behind")

    def test_a_hung_worker_is_replaced(self):
        with Server(tp=8) as server:
            expected = server.stream(PROMPT, max_tokens=TOKENS, ignore_eos=True)
            workers = server.workers()
            stopped = []

            def on_chunk(count):
                if count >= 5 and not stopped:
                    os.kill(workers[5], signal.SIGSTOP)
                    stopped.append(workers[5])

            got = server.stream(PROMPT, on_chunk, max_tokens=TOKENS, ignore_eos=True)
            self.assertEqual(got, expected)
            wait_until(lambda: not alive(workers[5]), 10, "the hung worker was killed")

    def test_a_stopped_coordinator_is_unreachable_and_comes_back(self):
        with Server(tp=2) as server:
            pids = [p for p, name in server.processes().items() if name == "copse-coordinator"]
            health = lambda: server.request("GET", "/health")
            expected = server.complete(PROMPT, max_tokens=8)["choices"][0]["text"]
            os.kill(pids[0], signal.SIGSTOP)
            try:
                wait_until(
                    lambda: health()[0:2] == (503, {"status": "unreachable"}), 10, "health says so"
                )
            finally:
                os.kill(pids[0], signal.SIGCONT)
            wait_until(lambda: health()[0] == 200, 30, "it recovers")
            self.assertEqual(server.complete(PROMPT, max_tokens=8)["choices"][0]["text"], expected)

    def test_the_third_failure_ends_the_group(self):
        with Server(tp=2) as server:
            for _ in range(3):
                workers = server.workers()
                os.kill(workers[1], signal.SIGKILL)
                wait_until(
                    lambda: server.process.poll() is not None
                    or (set(server.workers().values()) - set(workers.values())),
                    30,
                    "a restart or the end",
                )
                if server.process.poll() is None:
                    try:
                        server.wait_ready()
                    except AssertionError:
                        pass
            wait_until(lambda: server.process.poll() is not None, 30, "the server ended")
            self.assertNotEqual(server.process.returncode, 0)


if __name__ == "__main__":
    unittest.main()
