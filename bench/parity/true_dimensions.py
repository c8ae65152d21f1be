#!/usr/bin/env python3
"""copse against Transformers at the true dimensions of Kimi-K2, two layers of it.

  bench/parity/true_dimensions.py --copse build/copse --scratch DIR [--tp 2] [--out parity.json]

Needs a GPU, PyTorch and Transformers 5; see README.md. Writes about 14 GB under DIR, which must not
hold a checkpoint yet, and removes them at the end (--keep: not). Exit status 1 when a bound is
missed or a run fails. --small --device cpu tries the same on a machine without a GPU.
"""

import argparse
import concurrent.futures
import gc
import json
import pathlib
import shutil
import subprocess
import sys
import time

import torch
import transformers
from safetensors.torch import load_file, save_file

import checkpoint
import comparison
import reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs/models/kimi-k2.6/config.json"
STARTED = time.monotonic()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copse", required=True, help="the program")
    parser.add_argument("--scratch", required=True, type=pathlib.Path)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--tp", nargs="+", type=int, default=[1], help="sizes, one after another")
    parser.add_argument("--share-gpu", action="store_true", help="all ranks on one GPU")
    parser.add_argument("--layers", type=int, default=2, choices=[1, 2], help="1: dense alone")
    parser.add_argument("--vocabulary", type=int, default=163840)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--texts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=4, help="runs at the same time")
    parser.add_argument("--timeout", type=float, default=60, help="seconds of one run")
    parser.add_argument("--small", action="store_true", help="narrow layers")
    parser.add_argument("--control", action="store_true", help="also Transformers in bf16")
    parser.add_argument("--keep", action="store_true", help="leave the files")
    parser.add_argument("--out", type=pathlib.Path, help="JSON with every figure")
    arguments = parser.parse_args()
    if any((arguments.scratch / name).exists() for name in ("bf16", "int4")):
        parser.error("--scratch holds a checkpoint already")
    if arguments.device == "cpu":
        arguments.dtypes = ["float32"]
    return arguments


def note(text):
    print(f"[{time.monotonic() - STARTED:6.1f} s] {text}", flush=True)


def write_golden(folder, number, given, answers):
    (folder / f"golden-{number}.json").write_text(json.dumps(given))
    golden = {f"golden.{part}": rows["logits"].contiguous() for part, rows in answers.items()}
    save_file(golden, str(folder / f"golden-{number}.safetensors"))


def control_rows(config, weights, given):
    """What Transformers makes of the first text in bf16: the yardstick beside the bounds."""
    model = reference.Reference(config, weights, torch.bfloat16)
    return {part: rows["logits"] for part, rows in model.answers(given).items()}


def prepare(arguments):
    """Checkpoints and goldens on disk: their folders, and answers by (folder's name, number)."""
    config = checkpoint.model_config(
        CONFIG, arguments.layers, arguments.vocabulary, arguments.experts, arguments.small
    )
    weights = checkpoint.make_weights(config, arguments.seed, arguments.device)
    quantized = checkpoint.quantize(weights)
    note(f"{sum(w.numel() for w in weights.values()) / 1e9:.2f} G weights drawn")
    folders = checkpoint.write_checkpoints(arguments.scratch, config, weights, quantized)
    note("checkpoints written")
    inputs = reference.make_inputs(arguments.texts, arguments.vocabulary, arguments.seed)
    control = control_rows(config, weights, inputs[0]) if arguments.control else {}
    model = reference.Reference(config, weights)
    del weights
    answers = {}
    for name, folder in folders.items():
        if name == "int4":
            model.use_quantized(quantized)
        for number, given in enumerate(inputs, 1):
            answers[name, number] = model.answers(given)
            write_golden(folder, number, given, answers[name, number])
    note("reference answers written")
    for part, out in control.items():
        figures = comparison.compare(out, answers["bf16", 1][part], "bfloat16")
        note(f"Transformers itself in bfloat16, not judged, {part}: {figures}")
    return folders, answers


def score(arguments, folder, number, dtype, tp):
    """Runs copse; its output file, or why there is none."""
    out = folder / f"copse-{number}-{dtype}-{tp}.safetensors"
    command = [arguments.copse, "score", "--model", str(folder), "--out", str(out)]
    command += ["--input", str(folder / f"golden-{number}.json"), "--tp", str(tp)]
    command += ["--device", arguments.device]
    if arguments.device == "cuda":
        command += ["--dtype", dtype] + ["--share-gpu"] * (arguments.share_gpu and tp > 1)
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=arguments.timeout)
    except subprocess.TimeoutExpired:
        return None, f"ran longer than {arguments.timeout:.0f} s"
    if run.returncode != 0:
        return None, f"exit status {run.returncode}: {run.stderr.strip()[-400:]}"
    return out, ""


def judge(arguments, folders, answers, case):
    name, number, dtype, tp = case
    started = time.monotonic()
    out, why = score(arguments, folders[name], number, dtype, tp)
    key = {"weights": name, "text": number, "dtype": dtype, "tp": tp}
    key["seconds"] = round(time.monotonic() - started, 1)
    if out is None:
        return [key | {"part": "all", "ok": False, "why": why}]
    found = load_file(str(out))
    if not arguments.keep:
        out.unlink()
    missing = torch.empty(0)
    return [
        key | {"part": part} | comparison.compare(found.get(part, missing), rows, dtype)
        for part, rows in answers[name, number].items()
    ]


HEADER = "weights dtype     tp text part         rows apart  largest   relative  worst row top-1"


def show(row):
    head = f"{row['weights']:7} {row['dtype']:9} {row['tp']:2} {row['text']:4} {row['part']:12}"
    verdict = "ok" if row["ok"] else "MISSED"
    if "why" in row:
        return f"{head} {verdict}: {row['why']}"
    figures = f"{row['largest']:9.2e} {row['relative']:9.2e} {row['worst_row']:9.2e}"
    top = f"{row['top1_equal']} of {row['rows'] - len(row['flipped'])}"
    top += f", {row['top1_wrong']} wrong of {row['top1_judged']} judged"
    named = f", routed apart: {row['flipped']}" if row["flipped"] else ""
    return f"{head} {row['rows']:4} {len(row['flipped']):5}  {figures} {top}  {verdict}{named}"


def environment(arguments):
    cuda = arguments.device == "cuda"
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "arguments": {k: str(v) for k, v in vars(arguments).items() if k not in ("copse", "out")},
    }


def main():
    arguments = parse_arguments()
    folders, answers = prepare(arguments)
    gc.collect()  # the reference model's device memory is copse's from here on
    if arguments.device == "cuda":
        torch.cuda.empty_cache()
    cases = [
        (name, number, dtype, tp)
        for tp in arguments.tp
        for number in range(1, arguments.texts + 1)
        for name in folders
        for dtype in arguments.dtypes
    ]
    rows = []
    print(HEADER)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for found in pool.map(lambda case: judge(arguments, folders, answers, case), cases):
            rows += found
            print("\n".join(map(show, found)), flush=True)
    missed = sum(not row["ok"] for row in rows)
    note(f"{len(rows) - missed} of {len(rows)} within bounds")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps({**environment(arguments), "rows": rows}, indent=1))
    if not arguments.keep:
        for folder in folders.values():
            shutil.rmtree(folder)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
