#!/usr/bin/env python3
"""Streams one completion from a copse gateway to the terminal and prints its figures.

usage: stream_client.py URL [PROMPT]
"""

import json
import sys
import time
import urllib.request

PROMPT = "import os\n\ndef walk("


def events(response):
    """The JSON of each server-sent event until [DONE]."""
    for line in response:
        if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
            yield json.loads(line[len(b"data: ") :])


def main(url, prompt=PROMPT):
    body = {
        "model": "sapling",
        "prompt": prompt,
        "max_tokens": 160,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "draft": "tree",  # the server's default, auto, may find plain steps faster on a small CPU
        "draft_budget": 8,
    }
    request = urllib.request.Request(
        f"{url}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    start = time.monotonic()
    first = usage = timings = None
    print(prompt, end="", flush=True)
    with urllib.request.urlopen(request, timeout=120) as response:
        for event in events(response):
            if "error" in event:
                sys.exit(f"\nerror: {event['error']['message']}")
            for choice in event["choices"]:
                if choice["text"] and first is None:
                    first = time.monotonic()
                print(choice["text"], end="", flush=True)
            usage = event.get("usage") or usage
            timings = event.get("timings") or timings
    seconds = time.monotonic() - (first or start)
    tokens = usage["completion_tokens"]
    print("\n")
    print(f"tokens per second:               {max(tokens - 1, 0) / max(seconds, 1e-9):.1f}")
    print(f"mean accepted tokens per round:  {timings['accepted_per_round']:.2f}")
    print(f"time to first token:             {1000 * ((first or start) - start):.0f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
