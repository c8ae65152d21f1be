#!/usr/bin/env python3
"""Microseconds to grow a draft tree with Python's heapq, as the published reference does: the
figure that kernels/round/README.md compares its builders with. No dependencies.

usage: tree_heap.py [runs]
"""
import heapq
import random
import statistics
import sys
import time

POSITIONS, TOP_K = 15, 64


def draft(rng):
    """Descending log-probabilities, [POSITIONS][TOP_K], as round_cuda_bench draws them."""
    rows = []
    for position in range(POSITIONS):
        value = -0.05 - 0.7 * rng.random() - 0.05 * position
        slope = 1.6 * (0.7 + 0.6 * rng.random())
        row = []
        for rank in range(TOP_K):
            row.append(value)
            value -= slope * (0.5 + rng.random()) / (1 + rank)
        rows.append(row)
    return rows


def build(rows, budget):
    """Nodes (parent, depth, rank), best path first."""
    nodes = []
    heap = [(-rows[0][0], (0,), 0)]
    while heap and len(nodes) < budget:
        cost, ranks, parent = heapq.heappop(heap)
        depth, rank = len(ranks), ranks[-1]
        nodes.append((parent, depth, rank))
        if rank + 1 < TOP_K:
            sibling = cost + rows[depth - 1][rank] - rows[depth - 1][rank + 1]
            heapq.heappush(heap, (sibling, ranks[:-1] + (rank + 1,), parent))
        if depth < POSITIONS:
            heapq.heappush(heap, (cost - rows[depth][0], ranks + (0,), len(nodes)))
    return nodes


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    rows = draft(random.Random(1))
    for budget in (8, 16, 32, 64, 128, 512):
        times = []
        for _ in range(runs):
            begin = time.perf_counter()
            build(rows, budget)
            times.append(time.perf_counter() - begin)
        print(f"budget {budget:3d}: {statistics.median(times) * 1e6:8.1f} us")


if __name__ == "__main__":
    main()
