"""Trains the embedded pair: byte-level BPE tokenizer, target (sapling), drafter (sapling-dflash).

usage: train.py tokenizer CORPUS_DIR OUT
       train.py target CORPUS_DIR OUT --seconds 420
       train.py drafter CORPUS_DIR OUT --seconds 240
One GPU with bf16; every stage stops by wall clock. See README.md beside this file.
"""

import argparse, json, math, os, pathlib, random, time
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from model import DRAFT, TARGET, Drafter, Target

SPECIAL = [
    "<|bos|>",
    "<|eos|>",
    "<|pad|>",
    "<|mask|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|end|>",
]
BOS, EOS, PAD, MASK, SYSTEM, USER, ASSISTANT, END = range(8)
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{{ message['content'] | trim }}{{ '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def documents(path):
    for line in open(path):
        d = json.loads(line)
        yield d["kind"], (json.loads(d["text"]) if d["kind"] == "chat" else d["text"])


def train_tokenizer(corpus, out):
    from tokenizers import Tokenizer, Regex, decoders, models, pre_tokenizers, processors, trainers

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TARGET["vocab_size"],
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator(
        (t if k == "code" else t[0] + "\n" + t[1] for k, t in documents(f"{corpus}/train.jsonl")),
        trainer,
    )
    tok.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", BOS)]
    )
    d = pathlib.Path(out, "sapling")
    d.mkdir(parents=True, exist_ok=True)
    tok.save(str(d / "tokenizer.json"))
    json.dump(
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|bos|>",
            "eos_token": "<|eos|>",
            "pad_token": "<|pad|>",
            "add_bos_token": True,
            "clean_up_tokenization_spaces": False,
            "model_max_length": TARGET["max_position_embeddings"],
            "chat_template": TEMPLATE,
        },
        open(d / "tokenizer_config.json", "w"),
        indent=1,
    )


def encode(corpus, out, split):
    """All documents of a split as one stream of token ids."""
    from tokenizers import Tokenizer

    tok = Tokenizer.from_file(f"{out}/sapling/tokenizer.json")
    docs = list(documents(f"{corpus}/{split}.jsonl"))
    random.Random(0).shuffle(docs)
    flat = [t for k, t in docs if k == "code"] + [x for k, t in docs if k == "chat" for x in t]
    enc = [e.ids for e in tok.encode_batch(flat, add_special_tokens=False)]
    n = sum(k == "code" for k, _ in docs)
    codes, chats = iter(enc[:n]), iter(enc[n:])
    ids = []
    for k, _ in docs:
        ids += (
            [BOS] + next(codes) + [EOS]
            if k == "code"
            else [BOS, USER] + next(chats) + [END, ASSISTANT] + next(chats) + [END, EOS]
        )
    return torch.tensor(ids, dtype=torch.int32)


def batches(stream, size, length, generator):
    while True:
        at = torch.randint(0, len(stream) - length - 1, (size,), generator=generator)
        yield torch.stack([stream[i : i + length + 1] for i in at.tolist()]).long().cuda(
            non_blocking=True
        )


def rate(step, elapsed, seconds, peak, warmup=150, floor=0.05):
    t = min(1.0, elapsed / seconds)
    return (
        peak
        * min(1.0, (step + 1) / warmup)
        * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * t)))
    )


@torch.no_grad()
def heldout_loss(model, stream, n=24, length=512):
    model.eval()
    losses = []
    for i in range(0, min(len(stream) - length - 1, n * length), length):
        x = stream[i : i + length + 1].long().cuda()[None]
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(x[:, :-1])
        losses.append(F.cross_entropy(logits[0].float(), x[0, 1:]).item())
    model.train()
    return sum(losses) / len(losses)


def train_target(corpus, out, seconds, batch=64, length=512, peak=3e-3):
    torch.manual_seed(1)
    start = time.time()
    train, held = encode(corpus, out, "train"), encode(corpus, out, "heldout")
    print(
        f"tokens: train {len(train)}, held out {len(held)}, encoded in {time.time() - start:.0f} s",
        flush=True,
    )
    model = Target().cuda().train()
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=peak,
        betas=(0.9, 0.95),
        fused=True,
    )
    begin = time.time()
    seen = 0
    best = None
    for step, x in enumerate(batches(train, batch, length, torch.Generator().manual_seed(2))):
        elapsed = time.time() - begin
        if elapsed > seconds:
            break
        for g in opt.param_groups:
            g["lr"] = rate(step, elapsed, seconds, peak)
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(x[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), x[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        seen += x.shape[0] * length
        for layer in model.layers:
            if hasattr(layer.mlp, "balance"):
                layer.mlp.balance(1e-3 * (1 - min(1, elapsed / seconds)))
        if step % 200 == 0:
            print(
                f"step {step} {elapsed:.0f} s tokens {seen / 1e6:.0f} M loss {loss.item():.3f} "
                f"held out {heldout_loss(model, held):.3f}",
                flush=True,
            )
    facts = {
        "train_tokens": len(train),
        "tokens_seen": seen,
        "steps": step,
        "seconds": round(time.time() - begin),
        "train_loss": round(loss.item(), 4),
        "heldout_loss": round(heldout_loss(model, held), 4),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    save_target(model, out)
    json.dump(facts, open(f"{out}/target_facts.json", "w"))
    print(facts, flush=True)


def save_target(model, out):
    d = pathlib.Path(out, "sapling")
    d.mkdir(parents=True, exist_ok=True)
    tensors = model.hf_tensors()
    shards, size = [{}], 0
    for k, v in tensors.items():
        n = v.numel() * v.element_size()
        if size + n > 9_500_000 and shards[-1]:
            shards.append({})
            size = 0
        shards[-1][k] = v
        size += n
    index = {}
    for i, s in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(s, str(d / name), metadata={"format": "pt"})
        index.update({k: name for k in s})
    total = sum(v.numel() * v.element_size() for v in tensors.values())
    json.dump(
        {"metadata": {"total_size": total}, "weight_map": index},
        open(d / "model.safetensors.index.json", "w"),
        indent=1,
    )
    json.dump(
        dict(
            TARGET,
            architectures=["DeepseekV3ForCausalLM"],
            model_type="deepseek_v3",
            torch_dtype="bfloat16",
            ep_size=1,
            moe_layer_freq=1,
            num_nextn_predict_layers=0,
            rope_interleave=True,
            use_cache=True,
        ),
        open(d / "config.json", "w"),
        indent=1,
    )
    json.dump(
        {"bos_token_id": BOS, "eos_token_id": [EOS, END], "pad_token_id": PAD},
        open(d / "generation_config.json", "w"),
        indent=1,
    )


def load_target(out):
    d = pathlib.Path(out, "sapling")
    t = {}
    for f in sorted(d.glob("*.safetensors")):
        t.update(load_file(str(f)))
    model = Target().cuda()
    model.load_hf(t)
    return model.eval().requires_grad_(False)


@torch.no_grad()
def continuations(target, stream, count, prompt, length, generator, temperature):
    """Rows of `prompt` corpus tokens continued by the target itself to `length` tokens."""
    at = torch.randint(0, len(stream) - prompt - 1, (count,), generator=generator)
    ids = torch.stack([stream[i : i + prompt] for i in at.tolist()]).long().cuda()
    caches = target.caches(count, length)
    out = torch.empty((count, length), dtype=torch.long, device="cuda")
    out[:, :prompt] = ids
    step = ids
    for at in range(prompt, length):
        with torch.autocast("cuda", torch.bfloat16):
            logits = target(step, caches=caches, at=at - step.shape[1])[:, -1].float()
        out[:, at] = (
            logits.argmax(-1)
            if temperature == 0
            else torch.multinomial(F.softmax(logits / temperature, -1), 1)[:, 0]
        )
        step = out[:, at : at + 1]
    return out


def draft_batch(target, drafter, ids, anchors, generator, gamma):
    """Loss and per-position accuracy of blocks that start at random anchors of ids [B, S]."""
    c = DRAFT
    B, S = ids.shape
    n = c["block_size"]
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        logits, features = target(ids, capture=c["target_layer_ids"])
    at = torch.randint(8, S - n, (B, anchors), generator=generator).cuda()
    pos = (at[..., None] + torch.arange(n, device="cuda")).flatten(1)  # [B, A * n]
    block_ids = torch.full((B, anchors, n), MASK, device="cuda")
    block_ids[..., 0] = ids.gather(1, at)
    x = target.embed_tokens(block_ids.flatten(1))
    where = torch.arange(S, device="cuda").expand(B, S)
    owner = torch.arange(anchors, device="cuda").repeat_interleave(n)
    mask = torch.cat(
        (
            where[:, None, :] < at.repeat_interleave(n, 1)[..., None],
            (owner[:, None] == owner[None]).expand(B, -1, -1),
        ),
        -1,
    )
    with torch.autocast("cuda", torch.bfloat16):
        h = drafter(x, pos, features.float(), where, mask).view(B, anchors, n, -1)[:, :, 1:]
        out = target.lm_head(h).float()
    labels = ids.gather(1, pos).view(B, anchors, n)[..., 1:]
    soft = (
        logits.float()
        .gather(1, (pos - 1)[..., None].expand(-1, -1, logits.shape[-1]))
        .view(B, anchors, n, -1)[:, :, 1:]
        .softmax(-1)
    )
    logp = out.log_softmax(-1)
    weight = torch.exp(-torch.arange(n - 1, device="cuda") / gamma)
    weight = weight / weight.sum()
    hard = -logp.gather(-1, labels[..., None])[..., 0]
    kl = -(soft * logp).sum(-1)
    hit = out.argmax(-1) == labels
    chain = 1 + hit.cumprod(-1).sum(-1).float().mean()
    return ((0.5 * hard + 0.5 * kl) * weight).sum(-1).mean(), chain


def save_drafter(drafter, out):
    d = pathlib.Path(out, "sapling-dflash")
    d.mkdir(parents=True, exist_ok=True)
    save_file(
        {k: v.detach().bfloat16().contiguous().cpu() for k, v in drafter.named_parameters()},
        str(d / "model.safetensors"),
        metadata={"format": "pt"},
    )
    c = DRAFT
    json.dump(
        {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "block_size": c["block_size"],
            "num_target_layers": c["num_target_layers"],
            "dflash_config": {
                "mask_token_id": c["mask_token_id"],
                "target_layer_ids": c["target_layer_ids"],
            },
            "hidden_size": c["hidden_size"],
            "intermediate_size": c["intermediate_size"],
            "num_hidden_layers": c["num_hidden_layers"],
            "num_attention_heads": c["num_attention_heads"],
            "num_key_value_heads": c["num_key_value_heads"],
            "head_dim": c["head_dim"],
            "rms_norm_eps": c["rms_norm_eps"],
            "rope_theta": c["rope_theta"],
            "rope_scaling": None,
            "layer_types": ["full_attention"] * c["num_hidden_layers"],
            "sliding_window": None,
            "use_sliding_window": False,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "hidden_act": "silu",
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
            "vocab_size": TARGET["vocab_size"],
            "torch_dtype": "bfloat16",
        },
        open(d / "config.json", "w"),
        indent=1,
    )


def train_drafter(corpus, out, seconds, batch=48, length=384, anchors=24, peak=2e-3, own_share=0.7):
    torch.manual_seed(3)
    train, held = encode(corpus, out, "train"), encode(corpus, out, "heldout")
    target = load_target(out)
    drafter = Drafter().cuda()
    g = torch.Generator().manual_seed(4)
    begin = time.time()
    pool = []
    for temperature in (0.0, 0.7):
        pool.append(continuations(target, train, 4096, 96, length, g, temperature).cpu())
    pool = torch.cat(pool)
    held_own = continuations(target, held, 64, 96, length, torch.Generator().manual_seed(5), 0.0)
    print(f"own text: {pool.numel() / 1e6:.2f} M tokens in {time.time() - begin:.0f} s", flush=True)
    opt = torch.optim.AdamW(
        drafter.parameters(), lr=peak, betas=(0.9, 0.95), weight_decay=0.05, fused=True
    )
    corpus_batches = batches(train, batch, length - 1, g)
    step = 0
    t0 = time.time()
    limit = seconds
    while time.time() - t0 < limit:
        share = own_share if time.time() - t0 > limit * 0.3 else 0.2
        ids = (
            pool[torch.randint(0, len(pool), (batch,), generator=g)].cuda()
            if random.random() < share
            else next(corpus_batches)
        )
        for q in opt.param_groups:
            q["lr"] = rate(step, time.time() - t0, limit, peak)
        loss, chain = draft_batch(target, drafter, ids, anchors, g, 7.0)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        opt.step()
        if step % 200 == 0:
            with torch.no_grad():
                hl, hc = draft_batch(
                    target, drafter, held_own, 24, torch.Generator().manual_seed(6), 7.0
                )
            print(
                f"step {step} {time.time() - t0:.0f} s loss {loss.item():.3f} "
                f"chain {chain.item():.2f} | held out, own text: "
                f"loss {hl.item():.3f} chain {hc.item():.2f}",
                flush=True,
            )
        step += 1
    with torch.no_grad():
        hl, hc = draft_batch(target, drafter, held_own, 24, torch.Generator().manual_seed(6), 7.0)
    save_drafter(drafter, out)
    facts = {
        "steps": step,
        "seconds": round(time.time() - begin),
        "own_text_tokens": pool.numel(),
        "heldout_chain_teacher_forced": round(hc.item(), 3),
        "parameters": sum(p.numel() for p in drafter.parameters()),
    }
    json.dump(facts, open(f"{out}/drafter_facts.json", "w"))
    print(facts, flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("stage", choices=["tokenizer", "target", "drafter"])
    ap.add_argument("corpus")
    ap.add_argument("out")
    ap.add_argument("--seconds", type=float, default=300)
    a = ap.parse_args()
    t = time.time()
    if a.stage == "tokenizer":
        train_tokenizer(a.corpus, a.out)
    elif a.stage == "target":
        train_target(a.corpus, a.out, a.seconds)
    else:
        train_drafter(a.corpus, a.out, a.seconds)
    print(f"{a.stage}: {time.time() - t:.0f} s", flush=True)


if __name__ == "__main__":
    main()
