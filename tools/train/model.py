"""The embedded pair in PyTorch, for training: a DeepSeek-V3-style target and a DFlash drafter.

Both use Hugging Face's tensor names. The target follows the published DeepSeek-V3 definition: MLA
with interleaved rotary pairs, a sigmoid router with a score-correction bias, one shared expert. All
experts run on all tokens and unselected ones get weight 0: at this size that is faster than
gathering, and it has the same value.
"""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F

TARGET = dict(
    vocab_size=4096,
    hidden_size=256,
    intermediate_size=768,
    moe_intermediate_size=128,
    num_hidden_layers=5,
    num_attention_heads=8,
    num_key_value_heads=8,
    n_shared_experts=1,
    n_routed_experts=16,
    routed_scaling_factor=2.5,
    kv_lora_rank=512,
    q_lora_rank=192,
    qk_rope_head_dim=64,
    v_head_dim=64,
    qk_nope_head_dim=64,
    n_group=1,
    topk_group=1,
    num_experts_per_tok=4,
    first_k_dense_replace=1,
    norm_topk_prob=True,
    scoring_func="sigmoid",
    topk_method="noaux_tc",
    hidden_act="silu",
    max_position_embeddings=4096,
    rms_norm_eps=1e-6,
    rope_theta=10000.0,
    rope_scaling=None,
    tie_word_embeddings=False,
    attention_bias=False,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=2,
)
DRAFT = dict(
    hidden_size=256,
    intermediate_size=768,
    num_hidden_layers=3,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=32,
    block_size=16,
    num_target_layers=5,
    mask_token_id=3,
    target_layer_ids=[1, 2, 3],
    rms_norm_eps=1e-6,
    rope_theta=10000.0,
)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)).to(
            x.dtype
        ) * self.weight.to(x.dtype)


def angles(positions, dim, theta):
    """[..., dim / 2] rotary angles of absolute positions."""
    inv = theta ** (-torch.arange(0, dim, 2, device=positions.device, dtype=torch.float32) / dim)
    return positions.float()[..., None] * inv


def rotate_pairs(x, ang):
    """Rotates (2i, 2i + 1) pairs: DeepSeek's layout. x [B, H, S, D], ang [S, D / 2]."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    c, s = ang.cos(), ang.sin()
    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2).to(x.dtype)


def rotate_halves(x, ang):
    """Rotates (i, i + D / 2) pairs: Qwen3's layout."""
    a, b = x.float().chunk(2, -1)
    c, s = ang.cos(), ang.sin()
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(x.dtype)


class MLA(nn.Module):
    def __init__(self, c):
        super().__init__()
        h = c["num_attention_heads"]
        self.c = c
        self.q_a_proj = nn.Linear(c["hidden_size"], c["q_lora_rank"], bias=False)
        self.q_a_layernorm = RMSNorm(c["q_lora_rank"])
        self.q_b_proj = nn.Linear(
            c["q_lora_rank"], h * (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]), bias=False
        )
        self.kv_a_proj_with_mqa = nn.Linear(
            c["hidden_size"], c["kv_lora_rank"] + c["qk_rope_head_dim"], bias=False
        )
        self.kv_a_layernorm = RMSNorm(c["kv_lora_rank"])
        self.kv_b_proj = nn.Linear(
            c["kv_lora_rank"], h * (c["qk_nope_head_dim"] + c["v_head_dim"]), bias=False
        )
        self.o_proj = nn.Linear(h * c["v_head_dim"], c["hidden_size"], bias=False)

    def forward(self, x, ang, cache=None, at=0):
        """x [B, S, H] at positions at .. at + S - 1.

        cache = (keys, values) buffers [B, h, L, n + r] that are filled and read, or None.
        """
        c = self.c
        B, S, _ = x.shape
        h, n, r, v = (
            c["num_attention_heads"],
            c["qk_nope_head_dim"],
            c["qk_rope_head_dim"],
            c["v_head_dim"],
        )
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))).view(B, S, h, n + r).transpose(1, 2)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split([c["kv_lora_rank"], r], -1)
        k_nope, value = (
            self.kv_b_proj(self.kv_a_layernorm(latent))
            .view(B, S, h, n + v)
            .transpose(1, 2)
            .split([n, v], -1)
        )
        q = torch.cat((q[..., :n], rotate_pairs(q[..., n:], ang)), -1)
        k = torch.cat((k_nope, rotate_pairs(k_rope[:, None], ang).expand(-1, h, -1, -1)), -1)
        value = F.pad(value, (0, n + r - v))
        if cache is not None:
            keys, values = cache
            keys[:, :, at : at + S] = k
            values[:, :, at : at + S] = value
            k, value = keys[:, :, : at + S], values[:, :, : at + S]
        out = F.scaled_dot_product_attention(q.to(k.dtype), k, value.to(k.dtype), is_causal=S > 1)[
            ..., :v
        ].to(x.dtype)
        return self.o_proj(out.transpose(1, 2).reshape(B, S, h * v))


class MLP(nn.Module):
    def __init__(self, hidden, inter):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inter, bias=False)
        self.up_proj = nn.Linear(hidden, inter, bias=False)
        self.down_proj = nn.Linear(inter, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        E, H, I = c["n_routed_experts"], c["hidden_size"], c["moe_intermediate_size"]
        self.gate = nn.Parameter(torch.empty(E, H))
        self.register_buffer("bias", torch.zeros(E))
        self.register_buffer("load", torch.zeros(E), persistent=False)
        self.w_gate = nn.Parameter(torch.empty(E, I, H))
        self.w_up = nn.Parameter(torch.empty(E, I, H))
        self.w_down = nn.Parameter(torch.empty(E, H, I))
        self.shared_experts = MLP(H, I * c["n_shared_experts"])
        for p in (self.gate, self.w_gate, self.w_up, self.w_down):
            nn.init.normal_(p, std=0.02 if p is self.gate else p.shape[-1] ** -0.5 * 0.7)

    def forward(self, x):
        c = self.c
        flat = x.reshape(-1, x.shape[-1])
        with torch.autocast("cuda", enabled=False):
            scores = torch.sigmoid(flat.float() @ self.gate.float().T)
            top = (scores + self.bias).topk(c["num_experts_per_tok"], -1).indices
            w = scores.gather(-1, top)
            w = w / (w.sum(-1, keepdim=True) + 1e-20) * c["routed_scaling_factor"]
            weights = torch.zeros_like(scores).scatter(-1, top, w)
        if self.training:
            self.load += torch.zeros_like(scores).scatter(-1, top, 1.0).sum(0).detach()
        h = F.silu(torch.einsum("th,eih->eti", flat, self.w_gate)) * torch.einsum(
            "th,eih->eti", flat, self.w_up
        )
        out = torch.einsum("eti,ehi->th", h * weights.T.to(h.dtype)[..., None], self.w_down)
        return out.view_as(x) + self.shared_experts(x)

    @torch.no_grad()
    def balance(self, rate):
        """Balancing without a loss: raise the bias of under-used experts, lower the others'."""
        self.bias += rate * torch.sign(self.load.mean() - self.load)
        self.load.zero_()


class Layer(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"])
        self.self_attn = MLA(c)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"])
        self.mlp = (
            MLP(c["hidden_size"], c["intermediate_size"])
            if index < c["first_k_dense_replace"]
            else MoE(c)
        )

    def forward(self, x, ang, cache=None, at=0):
        x = x + self.self_attn(self.input_layernorm(x), ang, cache, at)
        return x + self.mlp(self.post_attention_layernorm(x))


class Target(nn.Module):
    def __init__(self, c=TARGET):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(c["hidden_size"])
        self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, std=m.in_features**-0.5 * 0.7)
        nn.init.normal_(self.embed_tokens.weight, std=0.5)
        for layer in self.layers:
            nn.init.normal_(layer.self_attn.o_proj.weight, std=0.02)

    def caches(self, batch, length):
        c = self.c
        shape = (
            batch,
            c["num_attention_heads"],
            length,
            c["qk_nope_head_dim"] + c["qk_rope_head_dim"],
        )
        return [
            tuple(torch.empty(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
            for _ in self.layers
        ]

    def forward(self, ids, capture=(), caches=None, at=0):
        """ids [B, S] -> logits [B, S, V].

        With capture, also the outputs of those layers, concatenated: [B, S, len(capture) * H].
        """
        ang = angles(
            at + torch.arange(ids.shape[1], device=ids.device),
            self.c["qk_rope_head_dim"],
            self.c["rope_theta"],
        )
        x = self.embed_tokens(ids)
        kept = []
        for i, layer in enumerate(self.layers):
            x = layer(x, ang, caches[i] if caches else None, at)
            if i in capture:
                kept.append(x)
        logits = self.lm_head(self.norm(x))
        return (logits, torch.cat(kept, -1)) if capture else logits

    def hf_tensors(self):
        out = {
            "model.embed_tokens.weight": self.embed_tokens.weight,
            "model.norm.weight": self.norm.weight,
            "lm_head.weight": self.lm_head.weight,
        }
        for i, layer in enumerate(self.layers):
            p = f"model.layers.{i}."
            for n, t in layer.named_parameters():
                if n.startswith("mlp.w_") or n == "mlp.gate":
                    continue
                out[p + n] = t
            if isinstance(layer.mlp, MoE):
                m = layer.mlp
                out[p + "mlp.gate.weight"] = m.gate
                out[p + "mlp.gate.e_score_correction_bias"] = m.bias
                for e in range(m.gate.shape[0]):
                    for n, w in (
                        ("gate_proj", m.w_gate),
                        ("up_proj", m.w_up),
                        ("down_proj", m.w_down),
                    ):
                        out[f"{p}mlp.experts.{e}.{n}.weight"] = w[e]
        return {
            k: (v.detach().float() if "e_score" in k else v.detach().bfloat16()).contiguous().cpu()
            for k, v in out.items()
        }

    def load_hf(self, t):
        own = {}
        for i, layer in enumerate(self.layers):
            p = f"model.layers.{i}."
            for n, q in layer.named_parameters():
                if not (n.startswith("mlp.w_") or n == "mlp.gate"):
                    own[q] = t[p + n]
            if isinstance(layer.mlp, MoE):
                m = layer.mlp
                own[m.gate] = t[p + "mlp.gate.weight"]
                m.bias.copy_(t[p + "mlp.gate.e_score_correction_bias"])
                for n, w in (("gate_proj", m.w_gate), ("up_proj", m.w_up), ("down_proj", m.w_down)):
                    own[w] = torch.stack(
                        [t[f"{p}mlp.experts.{e}.{n}.weight"] for e in range(m.gate.shape[0])]
                    )
        own[self.embed_tokens.weight] = t["model.embed_tokens.weight"]
        own[self.norm.weight] = t["model.norm.weight"]
        own[self.lm_head.weight] = t["lm_head.weight"]
        with torch.no_grad():
            for q, v in own.items():
                q.copy_(v.to(q.device).float())


class DraftAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        H, h, g, d = (
            c["hidden_size"],
            c["num_attention_heads"],
            c["num_key_value_heads"],
            c["head_dim"],
        )
        self.q_proj = nn.Linear(H, h * d, bias=False)
        self.k_proj = nn.Linear(H, g * d, bias=False)
        self.v_proj = nn.Linear(H, g * d, bias=False)
        self.o_proj = nn.Linear(h * d, H, bias=False)
        self.q_norm = RMSNorm(d)
        self.k_norm = RMSNorm(d)

    def forward(self, x, context, ang_x, ang_context, mask):
        c = self.c
        h, g, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        B, Q, _ = x.shape
        both = torch.cat((context, x), 1)
        heads = lambda t, n: t.view(B, -1, n, d).transpose(1, 2)
        q = rotate_halves(self.q_norm(heads(self.q_proj(x), h)), ang_x[:, None])
        k = rotate_halves(
            self.k_norm(heads(self.k_proj(both), g)), torch.cat((ang_context, ang_x), 1)[:, None]
        )
        v = heads(self.v_proj(both), g)
        out = F.scaled_dot_product_attention(
            q,
            k.repeat_interleave(h // g, 1),
            v.repeat_interleave(h // g, 1),
            attn_mask=mask[:, None],
        )
        return self.o_proj(out.transpose(1, 2).reshape(B, Q, h * d))


class DraftLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn = DraftAttention(c)
        self.mlp = MLP(c["hidden_size"], c["intermediate_size"])
        self.input_layernorm = RMSNorm(c["hidden_size"])
        self.post_attention_layernorm = RMSNorm(c["hidden_size"])

    def forward(self, x, context, ang_x, ang_context, mask):
        x = x + self.self_attn(self.input_layernorm(x), context, ang_x, ang_context, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Drafter(nn.Module):
    """DFlash (arXiv 2602.06036).

    The target's features enter every layer as extra keys and values; the block attends to them and,
    both ways, to itself.
    """

    def __init__(self, c=DRAFT):
        super().__init__()
        self.c = c
        H = c["hidden_size"]
        self.fc = nn.Linear(len(c["target_layer_ids"]) * H, H, bias=False)
        self.hidden_norm = RMSNorm(H)
        self.norm = RMSNorm(H)
        self.layers = nn.ModuleList(DraftLayer(c) for _ in range(c["num_hidden_layers"]))
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, std=m.in_features**-0.5 * 0.7)

    def forward(self, block, positions, features, feature_positions, mask):
        """block [B, Q, H] embeddings at positions [B, Q] -> hidden states [B, Q, H].

        features [B, S, n * H] at feature_positions [B, S]; mask [B, Q, S + Q], true where visible.
        """
        context = self.hidden_norm(self.fc(features))
        ax = angles(positions, self.c["head_dim"], self.c["rope_theta"])
        ac = angles(feature_positions, self.c["head_dim"], self.c["rope_theta"])
        for layer in self.layers:
            block = layer(block, context, ax, ac, mask)
        return self.norm(block)
