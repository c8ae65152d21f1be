"""Whether the logits of one run are the reference's, row by row."""

import torch

FLOAT32_ERROR_MAX = 1e-3  # of any logit
BF16_ERROR_MAX = 2e-2  # norm of the difference over norm of the reference
MARGIN_ERRORS = 4  # top-1 counts where the reference's margin is this many largest errors
FLIPPED_MAX = 0.25  # of the rows
# Distance between the router's scores that rounding may turn around.
FLIP_GAP = {"float32": 1e-5, "bfloat16": 2e-2}


def relative_rows(out, reference):
    return (out - reference).norm(dim=-1) / reference.norm(dim=-1)


def broken_rows(out, reference, dtype):
    if dtype == "float32":
        bad = (out - reference).abs().amax(-1) > FLOAT32_ERROR_MAX
    else:
        bad = relative_rows(out, reference) > BF16_ERROR_MAX
    return bad | ~torch.isfinite(out).all(-1)


def flipped_rows(out, answer, dtype):
    """Rows beyond the bound that are within it of another route through near experts."""
    broken = broken_rows(out, answer["logits"], dtype)
    flipped = torch.zeros_like(broken)
    for other, gaps in answer["other"]:
        rows = (broken & (gaps < FLIP_GAP[dtype])).nonzero().flatten()
        flipped[rows] |= ~broken_rows(out[rows], other[rows], dtype)
    return flipped


def compare(out, answer, dtype):
    """A dict of figures with "ok"; `answer` as Reference.rows gives it."""
    reference = answer["logits"]
    if out.shape != reference.shape:
        return {"ok": False, "why": f"shape {list(out.shape)}, not {list(reference.shape)}"}
    flipped = flipped_rows(out, answer, dtype)
    kept_out, kept = out[~flipped], reference[~flipped]
    if len(kept) < (1 - FLIPPED_MAX) * len(out):
        return {"ok": False, "why": f"{int(flipped.sum())} of {len(out)} rows were routed apart"}
    largest = float((kept_out - kept).abs().max())
    relative = float((kept_out - kept).norm() / kept.norm())
    top = kept.topk(2, dim=-1)
    margins = top.values[:, 0] - top.values[:, 1]
    judged = margins > (0 if dtype == "float32" else MARGIN_ERRORS * largest)
    equal = kept_out.argmax(-1) == top.indices[:, 0]
    bound = largest <= FLOAT32_ERROR_MAX if dtype == "float32" else relative < BF16_ERROR_MAX
    return {
        "ok": bool(bound and equal[judged].all() and torch.isfinite(out).all()),
        "rows": len(out),
        "flipped": flipped.nonzero().flatten().tolist(),
        "largest": largest,
        "relative": relative,
        "worst_row": float(relative_rows(kept_out, kept).max()),
        "top1_equal": int(equal.sum()),
        "top1_judged": int(judged.sum()),
        "top1_wrong": int((~equal & judged).sum()),
        "margin_min": float(margins.min()),
    }
