#!/usr/bin/env python3
"""Decode speed of the embedded pair by drafting mode, and where a step's time goes.

usage: bench/decode_modes.py [--tp 1,8] [--rounds 3] [--out bench/results/NAME.json]

Each mode is its own engine of real processes (copse generate --json), the modes take turns, and the
median of the rounds counts: nothing else differs between two lines of the table. Prints Markdown.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("COPSE_BUILD", ROOT / "build"))
MODES = [
    ("none", 0),
    ("chain", 0),
    ("tree", 4),
    ("tree", 8),
    ("tree", 16),
    ("tree", 32),
    ("auto", 0),
]
PARTS = ("draft", "build", "verify", "accept")


def generate(tp, mode, budget, prompt_ids, tokens):
    command = [BUILD / "copse", "generate", "--json", "--model", ROOT / "models/sapling"]
    command += ["--drafter", ROOT / "models/sapling-dflash", "--tp", tp, "--draft", mode]
    command += ["--max-tokens", tokens, "--ignore-eos", "--temperature", 0]
    command += ["--prompt-ids", ",".join(map(str, prompt_ids))]
    if budget:
        command += ["--budget", budget]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{mode} {budget} at tp {tp}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def shares(answers, tp):
    """Milliseconds of a mean decode step on rank 0, and the collectives' cost over all ranks."""
    steps = [a["steps"] for a in answers]
    count = sum(s["decode_steps"] for s in steps)
    row = {part: sum(s[f"{part}_us"] for s in steps) / count / 1000 for part in PARTS}
    row["collectives"] = sum(s["collective_us"] for s in steps) / count / 1000
    row["control"] = sum(s["control_us"] for s in steps) / count / 1000
    wall = sum(a["timing"]["decode_s"] for a in answers)
    compute = sum(s["ranks_compute_cpu_us"] for s in steps) / 1e6
    row["not_compute"] = 1 - compute / (os.cpu_count() * wall)
    row["step"] = 1000 * wall / count
    return row


def measure(tps, rounds, tokens):
    golden = json.loads((ROOT / "models/golden/generation.json").read_text())
    prompts = [golden[i]["prompt_ids"] for i in (1, 4, 7)]
    rows = []
    for tp in tps:
        found = {mode: [] for mode in MODES}
        for _ in range(rounds):
            for mode in MODES:
                answers = [generate(tp, *mode, prompt, tokens) for prompt in prompts]
                found[mode].append(answers)
        for (mode, budget), repeats in found.items():
            flat = [answer for answers in repeats for answer in answers]
            speeds = [
                sum(len(a["token_ids"]) - 1 for a in answers)
                / sum(a["timing"]["decode_s"] for a in answers)
                for answers in repeats
            ]
            rounds_made = sum(a["draft"]["rounds"] for a in flat)
            accepted = sum(a["draft"]["accepted_per_round"] * a["draft"]["rounds"] for a in flat)
            rows.append(
                {
                    "tp": tp,
                    "mode": mode,
                    "budget": budget,
                    "tok_s": statistics.median(speeds),
                    "tok_s_all": speeds,
                    "accepted_per_round": accepted / rounds_made,
                    **shares(flat, tp),
                }
            )
    return rows


def table(rows):
    names = ["draft", "build", "verify", "accept", "collectives", "control"]
    yield "| tp | mode | budget | tok/s | × none | accepted | step ms | " + " | ".join(names) + " |"
    yield "|" + "---|" * (7 + len(names))
    base = {row["tp"]: row["tok_s"] for row in rows if row["mode"] == "none"}
    for row in rows:
        budget = row["budget"] or ("-" if row["mode"] == "none" else "chosen")
        yield (
            f"| {row['tp']} | {row['mode']} | {budget} | {row['tok_s']:.1f} "
            f"| {row['tok_s'] / base[row['tp']]:.2f} | {row['accepted_per_round']:.2f} "
            f"| {row['step']:.2f} | " + " | ".join(f"{row[name]:.2f}" for name in names) + " |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tp", default="1,8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    rows = measure([int(tp) for tp in options.tp.split(",")], options.rounds, options.tokens)
    print("\n".join(table(rows)))
    for row in rows:
        print(f"tp {row['tp']} {row['mode']} {row['budget']}: not compute {row['not_compute']:.0%}")
    if options.out:
        with open("/proc/cpuinfo") as info:
            cpu = next(line.split(":")[1].strip() for line in info if "model name" in line)
        result = {
            "date": datetime.date.today().isoformat(),
            "machine": f"{os.cpu_count()} cores of {cpu}",
            "command": " ".join(["bench/decode_modes.py", *sys.argv[1:]]),
            "rows": rows,
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
