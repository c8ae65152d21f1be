#!/usr/bin/env python3
"""What else could do verify_attention, timed as verify_attention_cuda_bench times it.

  bench/peers.py [--heads 8,16] [--nodes 1,9,17] [--prefix 1024,4096] [--json out/peers.json]

Needs a GPU, PyTorch and Triton. One layer, batch 1, bf16, latent 512 + 64; a CUDA graph of at
least 61 calls, each on a cache of its own, 400 MB at least in all (cold). Peers:

  triton     the usual grouped split-KV decode kernel at page size 1, written here: every key is
             found through an index, a program takes up to 16 heads of one node against one split of
             the keys, a second kernel joins the splits. Nodes see prefix, ancestors, themselves.
  flash_mla  where installed: dense decode kernel, all nodes as one causal chain (it has no mask).

A peer that is not installed is named and left out.
"""
import argparse
import importlib.util
import json
import math
import statistics

import torch
import triton
import triton.language as tl

LATENT = 512
ROPE = 64
WIDTH = LATENT + ROPE
CALLS_MIN = 61
COLD_BYTES = 400_000_000
READ_BYTES_PER_S = 4615e9
FLOPS_PER_S = 785e12
SCALE = 0.07


@triton.jit
def split_kernel(q, pool, indices, mask, parts, stats, tokens, prefix, scale, nodes,
                 HEADS: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr,
                 SPLITS: tl.constexpr, LATENT: tl.constexpr, ROPE: tl.constexpr):
    node = tl.program_id(0)
    group = tl.program_id(1)
    split = tl.program_id(2)
    width: tl.constexpr = LATENT + ROPE
    head = group * BLOCK_H + tl.arange(0, BLOCK_H)
    has_head = head < HEADS
    latent = tl.arange(0, LATENT)
    rope = LATENT + tl.arange(0, ROPE)
    row = (node * HEADS + head) * width
    q_latent = tl.load(q + row[:, None] + latent[None, :], mask=has_head[:, None], other=0.0)
    q_rope = tl.load(q + row[:, None] + rope[None, :], mask=has_head[:, None], other=0.0)
    each = tl.cdiv(tl.cdiv(tokens, SPLITS), BLOCK_N) * BLOCK_N
    begin = split * each
    end = tl.minimum(begin + each, tokens)
    largest = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    out = tl.zeros([BLOCK_H, LATENT], tl.float32)
    for first in range(begin, end, BLOCK_N):
        token = first + tl.arange(0, BLOCK_N)
        inside = token < end
        place = tl.load(indices + token, mask=inside, other=0).to(tl.int64) * width
        seen = inside & (tl.load(mask + node * nodes + token - prefix,
                                 mask=inside & (token >= prefix), other=1) != 0)
        keys = tl.load(pool + place[:, None] + latent[None, :], mask=inside[:, None], other=0.0)
        key_rope = tl.load(pool + place[:, None] + rope[None, :], mask=inside[:, None], other=0.0)
        scores = tl.dot(q_latent, tl.trans(keys)) + tl.dot(q_rope, tl.trans(key_rope))
        scores = tl.where(seen[None, :], scores * scale, float("-inf"))
        before = largest
        largest = tl.maximum(largest, tl.max(scores, 1))
        reference = tl.where(largest == float("-inf"), 0.0, largest)
        rescale = tl.exp(before - reference)
        weights = tl.exp(scores - reference[:, None])
        total = total * rescale + tl.sum(weights, 1)
        out = out * rescale[:, None] + tl.dot(weights.to(keys.dtype), keys)
        # An empty split leaves largest at -inf and out at zero.
    at = (node * HEADS + head) * SPLITS + split
    tl.store(parts + at[:, None] * LATENT + latent[None, :], out, mask=has_head[:, None])
    tl.store(stats + at * 2, largest, mask=has_head)
    tl.store(stats + at * 2 + 1, total, mask=has_head)


@triton.jit
def join_kernel(parts, stats, out, SPLITS: tl.constexpr, LATENT: tl.constexpr):
    query = tl.program_id(0)
    latent = tl.arange(0, LATENT)
    largest = float("-inf")
    total = 0.0
    value = tl.zeros([LATENT], tl.float32)
    for split in range(SPLITS):
        at = query * SPLITS + split
        part_largest = tl.load(stats + at * 2)
        part_total = tl.load(stats + at * 2 + 1)
        if part_total > 0:
            after = tl.maximum(largest, part_largest)
            old = tl.exp(largest - after)
            new = tl.exp(part_largest - after)
            value = value * old + tl.load(parts + at * LATENT + latent) * new
            total = total * old + part_total * new
            largest = after
    tl.store(out + query * LATENT + latent, value / total)


class Triton:
    """The grouped split-KV kernel; `splits` is chosen by trying."""

    name = "triton"

    def __init__(self, case, splits):
        self.splits = splits
        queries = case.nodes * case.heads
        self.parts = torch.empty(queries, splits, LATENT, device="cuda")
        self.stats = torch.empty(queries, splits, 2, device="cuda")
        self.out = torch.empty(queries, LATENT, device="cuda", dtype=torch.bfloat16)

    def launch(self, case, pool):
        block_h = 16
        grid = (case.nodes, math.ceil(case.heads / block_h), self.splits)
        split_kernel[grid](case.q, pool, case.indices, case.mask, self.parts, self.stats,
                           case.prefix + case.nodes, case.prefix, SCALE, case.nodes,
                           HEADS=case.heads, BLOCK_H=block_h, BLOCK_N=32, SPLITS=self.splits,
                           LATENT=LATENT, ROPE=ROPE, num_warps=4, num_stages=2)
        join_kernel[(case.nodes * case.heads,)](self.parts, self.stats, self.out,
                                                SPLITS=self.splits, LATENT=LATENT, num_warps=4)
        return self.out


class FlashMla:
    name = "flash_mla"

    def __init__(self, case, _):
        import flash_mla  # pylint: disable=import-error,import-outside-toplevel
        self.mla = flash_mla
        self.lengths = torch.tensor([case.prefix + case.nodes], dtype=torch.int32, device="cuda")
        pages = math.ceil((case.prefix + case.nodes) / 64)
        self.table = torch.randperm(pages, device="cuda").to(torch.int32)[None]
        self.plan = flash_mla.get_mla_metadata(self.lengths, case.nodes * case.heads, 1)

    def launch(self, case, pool):
        q = case.q.view(1, case.nodes, case.heads, WIDTH)
        pages = pool[: self.table.numel() * 64].view(-1, 64, 1, WIDTH)
        out, _ = self.mla.flash_mla_with_kvcache(q, pages, self.table, self.lengths, LATENT,
                                                 *self.plan, softmax_scale=SCALE, causal=True)
        return out


class Case:
    """Inputs of one shape, and many caches of keys."""

    def __init__(self, heads, nodes, prefix):
        self.heads, self.nodes, self.prefix = heads, nodes, prefix
        tokens = math.ceil((prefix + nodes) / 64) * 64
        self.calls = max(CALLS_MIN, math.ceil(COLD_BYTES / (tokens * WIDTH * 2)))
        self.pools = torch.empty(self.calls, tokens, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.pools.uniform_(-1, 1)
        self.q = torch.empty(nodes * heads, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.q.uniform_(-1, 1)
        self.indices = torch.randperm(tokens, device="cuda")[: prefix + nodes].to(torch.int32)
        generator = torch.Generator().manual_seed(7)
        mask = torch.zeros(nodes, nodes, dtype=torch.uint8)
        for node in range(nodes):
            if node > 0:
                parent = int(torch.randint(node, (1,), generator=generator))
                mask[node] = mask[parent]
            mask[node, node] = 1
        self.mask = mask.cuda()

    def expected(self, pool):
        keys = pool[self.indices.long()].float()
        scores = (self.q.float() @ keys.T).view(self.nodes, self.heads, -1) * SCALE
        hidden = (self.mask == 0)[:, None, :]
        scores[:, :, self.prefix:].masked_fill_(hidden, float("-inf"))
        return (scores.softmax(-1) @ keys[:, :LATENT]).view(-1, LATENT)

    def floor_us(self):
        queries = self.heads * self.nodes
        tokens = self.prefix + self.nodes
        moved = 2 * (tokens * WIDTH + queries * (WIDTH + LATENT))
        flops = 2 * queries * (WIDTH + LATENT) * tokens
        return 1e6 * max(moved / READ_BYTES_PER_S, flops / FLOPS_PER_S)


def graph_time_us(case, peer, replays=3):
    """Median over replays of a graph of case.calls calls, divided by them."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        peer.launch(case, case.pools[0])
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for pool in case.pools:
                peer.launch(case, pool)
        graph.replay()
        times = []
        for _ in range(replays):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1000 / case.calls)
    return statistics.median(times)


def measure(case, peer_class, splits, checked):
    peer = peer_class(case, splits)
    if checked:
        actual = peer.launch(case, case.pools[0]).float()
        expected = case.expected(case.pools[0])
        error = ((actual - expected).norm() / expected.norm()).item()
        if not error < 1e-2:
            raise SystemExit(f"{peer.name} is wrong: relative error {error}")
    return graph_time_us(case, peer)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser.add_argument("--heads", type=numbers, default=[8, 16])
    parser.add_argument("--nodes", type=numbers, default=[1, 9, 17])
    parser.add_argument("--prefix", type=numbers, default=[1024, 4096, 16384, 65536])
    parser.add_argument("--json")
    args = parser.parse_args()
    for module in ("flash_mla", "flashinfer", "sglang"):
        if importlib.util.find_spec(module) is None:
            print(f"{module}: not installed, left out")
    peers = [(Triton, (8, 16, 32, 64), True)]
    if importlib.util.find_spec("flash_mla") is not None:
        peers.append((FlashMla, (0,), False))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    print("heads nodes  prefix   cold us  floor us of floor  peer")
    records = []
    for heads in args.heads:
        for nodes in args.nodes:
            for prefix in args.prefix:
                case = Case(heads, nodes, prefix)
                for peer, choices, checked in peers:
                    cold, splits = min((measure(case, peer, s, checked), s) for s in choices)
                    floor = case.floor_us()
                    print(f"{heads:5} {nodes:5} {prefix:7} {cold:9.1f} {floor:9.2f} "
                          f"{100 * floor / cold:6.0f} %  {peer.name} ({splits} splits)", flush=True)
                    records.append({"peer": peer.name, "heads": heads, "nodes": nodes,
                                    "prefix": prefix, "cold_us": cold, "floor_us": floor,
                                    "splits": splits})
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(records, file, indent=1)


if __name__ == "__main__":
    main()
