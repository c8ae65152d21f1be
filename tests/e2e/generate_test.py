#!/usr/bin/env python3
"""`copse generate`: one JSON object, and the same tokens in every drafting mode and world size."""

import json
import unittest

from support import DRAFTER, MODEL, generate, run_copse

PROMPT = ["--prompt", "def fibonacci(n):", "--max-tokens", "64"]


class Generate(unittest.TestCase):
    def test_prints_one_json_object_with_the_documented_fields(self):
        answer = generate("--tp", 8, "--draft", "tree", "--budget", 32, "--temperature", 0, *PROMPT)
        self.assertEqual(
            set(answer),
            {"text", "token_ids", "finish_reason", "usage", "draft", "timing", "steps"},
        )
        draft, usage = answer["draft"], answer["usage"]
        self.assertEqual((draft["mode"], draft["budget"]), ("tree", 32))
        self.assertEqual(usage["completion_tokens"], len(answer["token_ids"]))
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        # The prefill draws the first token; rounds deliver the rest.
        self.assertAlmostEqual(
            draft["accepted_per_round"] * draft["rounds"], usage["completion_tokens"] - 1, places=3
        )
        self.assertGreater(draft["accepted_per_round"], 1.5)
        self.assertGreater(answer["timing"]["decode_tok_s"], 0)
        self.assertGreater(answer["timing"]["ttft_s"], 0)
        self.assertGreater(answer["timing"]["load_s"], 0)

    def test_every_mode_and_world_size_gives_the_same_tokens(self):
        for sampling in (["--temperature", 0], ["--temperature", 0.8, "--seed", 7]):
            expected = None
            for tp in (1, 2, 4, 8):
                for mode in ("none", "chain", "tree", "auto"):
                    if tp in (2, 4) and mode == "auto":
                        continue
                    with self.subTest(tp=tp, mode=mode, sampling=sampling):
                        answer = generate("--tp", tp, "--draft", mode, *sampling, *PROMPT)
                        expected = expected or answer["token_ids"]
                        self.assertEqual(answer["token_ids"], expected)

    def test_prompt_ids_are_taken_as_they_are(self):
        by_text = generate("--tp", 1, "--draft", "none", "--prompt", "import os", "--max-tokens", 8)
        ids = "0,2152,393"
        by_ids = generate("--tp", 1, "--draft", "none", "--prompt-ids", ids, "--max-tokens", 8)
        self.assertEqual(by_ids["usage"]["prompt_tokens"], 3)
        self.assertEqual(by_text["usage"]["completion_tokens"], 8)

    def test_bad_input_is_an_error_that_names_the_flag(self):
        model = ["generate", "--model", MODEL, "--drafter", DRAFTER]
        for arguments, name in (
            (["generate", "--prompt", "x"], "--model"),
            ([*model, "--prompt", "x", "--tp", "3"], "--tp"),
            ([*model], "--prompt"),
            ([*model, "--prompt", "x", "--max-tokens", "0"], "max-tokens"),
            ([*model, "--prompt-ids", "1,9999"], "prompt"),
            ([*model, "--prompt", "x", "--temperature", "-1"], "temperature"),
            ([*model, "--prompt", "x", "--device", "cuda"], "--device"),
            (["generate", "--model", MODEL, "--draft", "tree", "--prompt", "x"], "--drafter"),
        ):
            with self.subTest(arguments=arguments[1:]):
                done = run_copse(*arguments, "--json")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(name, json.loads(done.stdout)["error"]["message"])


if __name__ == "__main__":
    unittest.main()
