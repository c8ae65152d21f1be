"""Random checkpoints of Kimi-K2's dimensions, in the names and formats of published ones.

Two folders with the same weights: bf16, and routed experts as INT4 pack-quantized in groups of 32
(low nibble first, value + 8). What is equal in both is one file with two hard links.
"""

import concurrent.futures
import json
import os
import pathlib

import torch
from safetensors.torch import save_file

GROUP = 32  # inputs that share a scale
NIBBLES = 8  # of one int32
EXPERTS_PER_SHARD = 32
NORM_SPREAD = 0.1
BIAS_SPREAD = 0.01


def model_config(published, layers, vocabulary, experts, small):
    """text_config of a published config, with fewer layers, experts and tokens."""
    config = dict(json.loads(pathlib.Path(published).read_text())["text_config"])
    config["num_hidden_layers"] = layers
    config["n_routed_experts"] = experts
    config["vocab_size"] = vocabulary
    for key in ("bos_token_id", "eos_token_id"):
        config[key] = min(config[key], vocabulary - 1)
    if small:
        config.update(hidden_size=256, intermediate_size=512, moe_intermediate_size=128)
        config.update(num_attention_heads=8, num_key_value_heads=8, q_lora_rank=96)
    config["torch_dtype"] = "bfloat16"
    return config


def attention_shapes(config):
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    nope, rope = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    value, latent = config["v_head_dim"], config["kv_lora_rank"]
    return {
        "q_a_proj": (config["q_lora_rank"], hidden),
        "q_b_proj": (heads * (nope + rope), config["q_lora_rank"]),
        "kv_a_proj_with_mqa": (latent + rope, hidden),
        "kv_b_proj": (heads * (nope + value), latent),
        "o_proj": (hidden, heads * value),
    }


class Generator:
    """Weights whose products keep activations of order one, the same for a seed and device."""

    def __init__(self, seed, device):
        self.device = device
        self.source = torch.Generator(device=device).manual_seed(seed)

    def normal(self, shape, spread, mean=0.0, dtype=torch.bfloat16):
        values = torch.empty(shape, dtype=torch.float32, device=self.device)
        return values.normal_(mean, spread, generator=self.source).to(dtype)

    def linear(self, outputs, inputs):
        return self.normal((outputs, inputs), inputs**-0.5)

    def norm(self, width):
        return self.normal((width,), NORM_SPREAD, mean=1.0)

    def mlp(self, prefix, inner, hidden):
        return {
            f"{prefix}.gate_proj.weight": self.linear(inner, hidden),
            f"{prefix}.up_proj.weight": self.linear(inner, hidden),
            f"{prefix}.down_proj.weight": self.linear(hidden, inner),
        }


def make_weights(config, seed, device):
    """Name -> tensor, bf16 but for the router's bias (float32), on `device`."""
    draw = Generator(seed, device)
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    weights = {
        "model.embed_tokens.weight": draw.normal((vocabulary, hidden), 1.0),
        "model.norm.weight": draw.norm(hidden),
        "lm_head.weight": draw.linear(vocabulary, hidden),
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        weights[f"{at}.input_layernorm.weight"] = draw.norm(hidden)
        weights[f"{at}.post_attention_layernorm.weight"] = draw.norm(hidden)
        weights[f"{at}.self_attn.q_a_layernorm.weight"] = draw.norm(config["q_lora_rank"])
        weights[f"{at}.self_attn.kv_a_layernorm.weight"] = draw.norm(config["kv_lora_rank"])
        for name, shape in attention_shapes(config).items():
            weights[f"{at}.self_attn.{name}.weight"] = draw.linear(*shape)
        if layer < config["first_k_dense_replace"]:
            weights |= draw.mlp(f"{at}.mlp", config["intermediate_size"], hidden)
            continue
        experts, inner = config["n_routed_experts"], config["moe_intermediate_size"]
        weights[f"{at}.mlp.gate.weight"] = draw.linear(experts, hidden)
        weights[f"{at}.mlp.gate.e_score_correction_bias"] = draw.normal(
            (experts,), BIAS_SPREAD, dtype=torch.float32
        )
        shared = inner * config["n_shared_experts"]
        weights |= draw.mlp(f"{at}.mlp.shared_experts", shared, hidden)
        for expert in range(experts):
            weights |= draw.mlp(f"{at}.mlp.experts.{expert}", inner, hidden)
    return weights


def is_routed(name):
    return ".mlp.experts." in name


def pack_int4(weight):
    """bf16 [out, in] -> int32 [out, in / 8] and scales bf16 [out, in / 32]."""
    outputs, inputs = weight.shape
    groups = weight.float().view(outputs, inputs // GROUP, GROUP)
    scale = (groups.abs().amax(-1) / 7).clamp_min(1e-8).to(torch.bfloat16)
    values = torch.round(groups / scale.float()[..., None]).clamp(-8, 7).to(torch.int64) + 8
    shifts = 4 * torch.arange(NIBBLES, device=weight.device)
    packed = (values.view(outputs, inputs // NIBBLES, NIBBLES) << shifts).sum(-1)
    signed = torch.where(packed >= 2**31, packed - 2**32, packed)
    return signed.to(torch.int32), scale


def unpack_int4(packed, scale):
    """What pack_int4's result stands for, float32 [out, in], exactly."""
    outputs = packed.shape[0]
    shifts = 4 * torch.arange(NIBBLES, device=packed.device, dtype=torch.int32)
    values = ((packed[..., None] >> shifts) & 15) - 8
    groups = values.view(outputs, -1, GROUP).float()
    return (groups * scale.float()[..., None]).view(outputs, -1)


def quantize(weights):
    """Routed experts alone, as weight_packed, weight_scale and weight_shape."""
    quantized = {}
    for name, weight in weights.items():
        if not is_routed(name):
            continue
        quantized[f"{name}_packed"], quantized[f"{name}_scale"] = pack_int4(weight)
        quantized[f"{name}_shape"] = torch.tensor(weight.shape, dtype=torch.int64)
    return quantized


def shards_of(weights):
    """[{name: tensor}]: tables, layers, and experts a few at a time."""
    shards = {}
    for name, tensor in weights.items():
        key = "layers" if name.startswith("model.layers.") else name
        if is_routed(name):
            key = f"experts {int(name.split('.')[5]) // EXPERTS_PER_SHARD}"
        if name == "model.norm.weight":
            key = "layers"
        shards.setdefault(key, {})[name] = tensor
    return list(shards.values())


def write_shards(folder, weights, shared_shards=()):
    """Index and shards; `shared_shards` [(path, names)] are linked, not written. Returns shards."""
    own = shards_of(weights)
    count = len(own) + len(shared_shards)
    paths = [folder / f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    written = list(zip(paths, (list(shard) for shard in own)))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda job: save_file(job[0], str(job[1])), zip(own, paths)))
    for (source, names), path in zip(shared_shards, paths[len(own) :]):
        os.link(source, path)
        written.append((path, names))
    total = sum(path.stat().st_size for path in paths)
    index = {
        "metadata": {"total_size": total},
        "weight_map": {name: path.name for path, names in written for name in names},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return written


def write_checkpoints(scratch, config, weights, quantized):
    """scratch/bf16 and scratch/int4, or bf16 alone where no layer has experts."""
    folders = {"bf16": scratch / "bf16"}
    if quantized:
        folders["int4"] = scratch / "int4"
    for name, folder in folders.items():
        folder.mkdir(parents=True)
        kept = {k: v for k, v in config.items() if k != "quantization_config" or name == "int4"}
        (folder / "config.json").write_text(json.dumps(kept, indent=1))
    written = write_shards(folders["bf16"], weights)
    if quantized:
        shared = [(path, names) for path, names in written if not is_routed(names[0])]
        write_shards(folders["int4"], quantized, shared)
    return folders
