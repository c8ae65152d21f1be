"""Right answers for those checkpoints: Transformers' DeepseekV3ForCausalLM in float32, eager.

Beside each row's logits stand those of other routes: what the row would be, had the last layer's
router chosen a near expert instead. A row in bf16 whose router fell the other way equals one of
them, so a flip is shown and not assumed.
"""

import itertools

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3RotaryEmbedding

from checkpoint import is_routed, unpack_int4

TEXT_TOKENS = 96
PREFIX_TOKENS = 64
TREE_NODES = 24
# Places in the router's order, best first, counted from the last chosen (0) outwards: which chosen
# ones leave and which others enter.
SWAPS = [((0,), (1,)), ((0,), (2,)), ((-1,), (1,)), ((-1,), (2,)), ((-1, 0), (1, 2))]


def make_inputs(texts, vocabulary, seed):
    """As `copse score --input` takes them; the first has a tree behind a prefix of it."""
    source = torch.Generator().manual_seed(seed)
    draw = lambda low, high: int(torch.randint(low, high, (1,), generator=source))
    inputs = [
        {"input_ids": [draw(0, vocabulary) for _ in range(TEXT_TOKENS)]} for _ in range(texts)
    ]
    parents = [-1]
    for node in range(1, TREE_NODES):
        parents.append(node - 1 if draw(0, 3) == 0 else draw(0, node))
    tokens = [draw(0, vocabulary) for _ in range(TREE_NODES)]
    inputs[0]["tree"] = {"prefix_len": PREFIX_TOKENS, "token_ids": tokens, "parents": parents}
    return inputs


class Reference:
    def __init__(self, config, weights, dtype=torch.float32):
        torch.set_float32_matmul_precision("highest")
        self.dtype = dtype
        self.device = weights["lm_head.weight"].device
        kept = {k: v for k, v in config.items() if k not in ("quantization_config", "model_type")}
        published = DeepseekV3Config(**kept, num_nextn_predict_layers=0)
        published._attn_implementation = "eager"
        published._experts_implementation = "eager"
        with torch.device("meta"):
            self.model = DeepseekV3ForCausalLM(published).eval()
        self.experts = [
            f"model.layers.{layer}.mlp.experts"
            for layer in range(config["first_k_dense_replace"], config["num_hidden_layers"])
        ]
        state = {
            # The router's bias is float32 in every dtype.
            k: v.to(torch.promote_types(v.dtype, dtype))
            for k, v in weights.items()
            if not is_routed(k)
        }
        state |= self.fused(config, lambda name: weights[name])
        self.model.load_state_dict(state, strict=True, assign=True)
        self.model.model.rotary_emb = DeepseekV3RotaryEmbedding(published).to(self.device)
        self.config = config

    def fused(self, config, matrix):
        """Transformers' parameters of all experts of a layer from `matrix(name)` of each."""
        hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
        count, state = config["n_routed_experts"], {}
        for at in self.experts:
            empty = dict(dtype=self.dtype, device=self.device)
            gate_up = torch.empty((count, 2 * inner, hidden), **empty)
            down = torch.empty((count, hidden, inner), **empty)
            for expert in range(count):
                gate_up[expert, :inner] = matrix(f"{at}.{expert}.gate_proj.weight")
                gate_up[expert, inner:] = matrix(f"{at}.{expert}.up_proj.weight")
                down[expert] = matrix(f"{at}.{expert}.down_proj.weight")
            state |= {f"{at}.gate_up_proj": gate_up, f"{at}.down_proj": down}
        return state

    def use_quantized(self, quantized):
        read = lambda name: unpack_int4(quantized[f"{name}_packed"], quantized[f"{name}_scale"])
        state = self.fused(self.config, read)
        self.model.load_state_dict(state, strict=False, assign=True)

    @torch.no_grad()
    def forward(self, tokens, positions=None, mask=None, swap=None):
        """Logits [n, vocabulary] and the gap in the router's scores that `swap` jumped [n]."""
        gaps = torch.zeros(len(tokens), device=self.device)
        hooks = []
        if self.experts:
            gate = self.model.get_submodule(self.experts[-1].replace("experts", "gate"))
            hooks.append(gate.register_forward_hook(lambda m, _, out: reroute(m, out, swap, gaps)))
        ids = torch.tensor([tokens], device=self.device)
        out = self.model(
            input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False
        )
        for hook in hooks:
            hook.remove()
        return out.logits[0].float(), gaps

    def rows(self, tokens, first=0, **placed):
        """The rows from `first` on: {"logits", "other" [(logits, gaps)]}, on the host."""
        logits, _ = self.forward(tokens, **placed)
        other = []
        for swap in SWAPS if self.experts else []:
            near, gaps = self.forward(tokens, swap=swap, **placed)
            other.append((near[first:].cpu(), gaps[first:].cpu()))
        return {"logits": logits[first:].cpu(), "other": other}

    def answers(self, given):
        """{"logits": rows, "tree_logits": rows} of one input."""
        found = {"logits": self.rows(given["input_ids"])}
        if "tree" in given:
            tree = given["tree"]
            tokens = given["input_ids"][: tree["prefix_len"]] + tree["token_ids"]
            positions, mask = place_tree(tree, self.device)
            found["tree_logits"] = self.rows(
                tokens, tree["prefix_len"], positions=positions, mask=mask
            )
        return found


def reroute(gate, out, swap, gaps):
    """The router's output with `swap` made; `gaps` gets the largest distance it jumped."""
    if swap is None:
        return None
    logits = out[0]
    scores = logits.sigmoid()
    ranked, order = (scores + gate.e_score_correction_bias).sort(-1, descending=True)
    leave = [gate.top_k - 1 + place for place in swap[0]]
    enter = [gate.top_k - 1 + place for place in swap[1]]
    gaps.copy_(ranked[:, min(leave)] - ranked[:, max(enter)])
    kept = [place for place in range(gate.top_k) if place not in leave]
    indices = order[:, list(itertools.chain(kept, enter))]
    weights = scores.gather(1, indices)
    if gate.norm_topk_prob:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return logits, weights * gate.routed_scaling_factor, indices


def place_tree(tree, device):
    """Positions [1, n] and mask [1, 1, n, n], n = prefix + nodes: a node sees the prefix, its
    ancestors and itself."""
    prefix, parents = tree["prefix_len"], tree["parents"]
    count = prefix + len(parents)
    sees = torch.ones((count, count)).tril().bool()
    sees[prefix:, prefix:] = False
    positions = list(range(prefix))
    for node, parent in enumerate(parents):
        positions.append(prefix if parent < 0 else positions[prefix + parent] + 1)
        at = node
        while at >= 0:
            sees[prefix + node, prefix + at] = True
            at = parents[at]
    mask = torch.zeros((count, count)).masked_fill(~sees, torch.finfo(torch.float32).min)
    return torch.tensor([positions], device=device), mask[None, None].to(device)
