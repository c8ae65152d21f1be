#!/usr/bin/env python3
"""Starts that must fail, and how: folders that are no models, flags beyond the machine's or the
model's bounds, and signals that come while everything is still being started."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from support import BUILD, DRAFTER, MODEL, ROOT, SLOW, Server, alive, descendants, run_copse
from support import wait_until

BAD_MODEL = 3
USAGE = 2


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="copse-e2e-")
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)


def write_text(name, text):
    return lambda model: (model / name).write_text(text)


def remove(name):
    return lambda model: (model / name).unlink()


def make_pipe(name):
    def damage(model):
        (model / name).unlink()
        os.mkfifo(model / name)

    return damage


def make_folder(name):
    def damage(model):
        (model / name).unlink()
        (model / name).mkdir()

    return damage


def cut(name):
    return lambda model: os.truncate(model / name, (model / name).stat().st_size // 2)


class BadModels(Folder):
    CONFIGS = {
        "no config": remove("config.json"),
        "a pipe for a config": make_pipe("config.json"),
        "a folder for a config": make_folder("config.json"),
        "no JSON": write_text("config.json", "{"),
        "a list": write_text("config.json", "[1]"),
        "another model": write_text("config.json", '{"model_type": "llama"}'),
        "a wrong value": write_text("config.json", '{"model_type": "kimi_k2", "vocab_size": -1}'),
        "a pipe beside it": make_pipe("generation_config.json"),
    }
    WEIGHTS = {
        "cut weights": cut("model-00003-of-00004.safetensors"),
        "a pipe for weights": make_pipe("model-00003-of-00004.safetensors"),
        "no weights": remove("model-00003-of-00004.safetensors"),
    }
    TOKENIZERS = {
        "no tokenizer": remove("tokenizer.json"),
        "a pipe for a tokenizer": make_pipe("tokenizer.json"),
        "a tokenizer that is none": write_text("tokenizer.json", "[]"),
    }

    def damaged(self, name, damage):
        model = self.path / name.replace(" ", "-")
        shutil.copytree(MODEL, model)
        damage(model)
        return model

    def check(self, command, damages):
        for name, damage in damages.items():
            with self.subTest(command=command[0], damage=name):
                done = run_copse(*command, "--model", self.damaged(name, damage), timeout=60)
                self.assertEqual(done.returncode, BAD_MODEL, done.stdout + done.stderr)
                self.assertTrue(done.stderr.strip(), "it says why")
        done = run_copse(*command, "--model", self.path / "nowhere", timeout=60)
        self.assertEqual(done.returncode, BAD_MODEL)

    def test_inspect(self):
        self.check(["inspect"], self.CONFIGS | self.WEIGHTS)

    def test_score(self):
        text = self.path / "text.json"
        text.write_text('{"input_ids": [0, 1]}')
        for tp in (1, 2):
            command = ["score", "--tp", tp, "--input", text, "--out", self.path / "out"]
            self.check(command, self.CONFIGS | self.WEIGHTS)
            for model in self.path.iterdir():
                if model.is_dir():
                    shutil.rmtree(model)

    def test_generate(self):
        command = ["generate", "--prompt", "x", "--tp", 2]
        self.check(command, self.CONFIGS | self.WEIGHTS | self.TOKENIZERS)

    def test_serve(self):
        self.check(["serve", "--port", 0], self.CONFIGS | self.WEIGHTS | self.TOKENIZERS)

    def test_a_bad_drafter(self):
        drafter = self.path / "drafter"
        shutil.copytree(DRAFTER, drafter)
        cut("model.safetensors")(drafter)
        done = run_copse("generate", "--prompt", "x", "--model", MODEL, "--drafter", drafter)
        self.assertEqual(done.returncode, BAD_MODEL, done.stderr)


class ScoreInputs(Folder):
    def score(self, text, source=None):
        path = self.path / "text.json"
        if source is None:
            path.write_text(text)
        return run_copse(
            "score", "--model", MODEL, "--input", source or path, "--out", self.path / "out"
        )

    def test_an_input_beyond_the_models_positions_names_them(self):
        done = self.score(json.dumps({"input_ids": [1] * 4097}))
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("input_ids", done.stderr)
        self.assertIn("max_position_embeddings of the model is 4096", done.stderr)

    def test_an_input_that_is_no_object_is_named_itself(self):
        done = self.score("[1]")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("text.json", done.stderr)
        self.assertNotIn("config.json", done.stderr)

    def test_an_input_may_come_through_a_pipe(self):
        pipe = self.path / "pipe"
        os.mkfifo(pipe)
        writer = threading.Thread(target=lambda: pipe.write_text('{"input_ids": [0, 1]}'))
        writer.start()
        done = self.score(None, pipe)
        writer.join()
        self.assertEqual(done.returncode, 0, done.stderr)


class Bounds(unittest.TestCase):
    def test_a_length_that_no_sequence_can_have_is_refused_with_the_bound(self):
        for length, reason in ((1, "2 at least"), (100000, "max_position_embeddings")):
            for command in (["serve", "--port", 0], ["generate", "--prompt", "x"]):
                with self.subTest(length=length, command=command[0]):
                    done = run_copse(*command, "--model", MODEL, "--max-model-len", length)
                    self.assertEqual(done.returncode, USAGE, done.stderr)
                    self.assertIn("--max-model-len", done.stderr)
                    self.assertIn(reason, done.stderr)

    def test_a_length_that_memory_does_not_hold_is_told(self):
        with Server("--max-model-len", 4096, "--kv-memory-mb", 1, tp=1) as server:
            wait_until(
                lambda: "of --max-model-len: the KV pages" in server.log_path.read_text(),
                10,
                "the log says which limit applies",
            )

    def test_more_threads_than_cores_are_taken_back_with_a_warning(self):
        done = run_copse(
            *("generate", "--model", MODEL, "--prompt", "x", "--max-tokens", 2),
            *("--threads", 256, "--json"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--threads 256 is more than", done.stderr)


class EarlySignals(Folder):
    def start(self, *arguments):
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.path)}
        return subprocess.Popen(
            [str(BUILD / "copse"), *map(str, arguments), "--model", str(MODEL)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
        )

    def check_end(self, process, seen, statuses):
        status = process.wait(30 * SLOW)
        self.assertIn(status, statuses)
        self.assertEqual(list(self.path.glob("copse-*")), [], "the run directory is gone")
        wait_until(lambda: not [pid for pid in seen if alive(pid)], 10, "no process is left")

    def test_a_signal_right_after_the_run_directory_ends_all_in_order(self):
        for delay_ms in (0, 1, 2, 5, 10, 20, 50, 100, 200):
            for number in (signal.SIGTERM, signal.SIGINT):
                with self.subTest(delay_ms=delay_ms, signal=number):
                    process = self.start("serve", "--port", 0, "--tp", 2)
                    while process.poll() is None and not list(self.path.glob("copse-*")):
                        pass
                    time.sleep(delay_ms / 1000)
                    seen = descendants(process.pid)
                    process.send_signal(number)
                    self.check_end(process, seen, {0})

    def test_a_signal_at_any_moment_of_generate_leaves_nothing_behind(self):
        for delay_ms in (0, 1, 2, 5, 10, 20, 50, 100, 200):
            with self.subTest(delay_ms=delay_ms):
                process = self.start("generate", "--prompt", "x", "--max-tokens", 4000)
                while process.poll() is None and not list(self.path.glob("copse-*")):
                    pass
                time.sleep(delay_ms / 1000)
                seen = descendants(process.pid)
                process.send_signal(signal.SIGTERM)
                self.check_end(process, seen, {1})


if __name__ == "__main__":
    unittest.main()
