#!/usr/bin/env python3
"""Reference data of whole models, computed by the real MaxText on XLA's CPU backend.

Writes for each case NAME of the table below: NAME.params and NAME.data, and for each arm NAME.ARM.out; where the
case trains, NAME.ARM.opt.json and NAME.ARM.stepN. What the files hold is said in tests/golden/data/README.md.
Nothing of MaxText is reimplemented here: the model is create_model's, loss and optimizer step are train.py's own
loss_fn and train_step.

Needs: a checkout of MaxText in which quantize_mtp works (pull request 5141), qwix 0.1.8, jax 0.10.2 (CPU),
flax 0.12.8, optax 0.2.8. Cases are random and depend only on their name and --seed.

usage: make_maxtext.py OUT --maxtext .../src [--case PATTERN ...] [--seed 1] [--sample 256] [--arms none,fp8,...]
       [--grow 1] [--missing]
--sample: numbers kept of a larger gradient; --grow 2: models of twice the width; --missing: only what OUT lacks
"""
import argparse
import contextlib
import fnmatch
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import pathlib
import re
import struct
import sys
import traceback
import types
from unittest.mock import MagicMock

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
import ml_dtypes
import numpy as np

# ---- what MaxText imports and these runs do not need ----


class Stub(types.ModuleType):
    def __getattr__(self, name):
        if name == "__version__":
            return "4.57.0"
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {}) if name[:1].isupper() else MagicMock(name=name)
        setattr(self, name, value)
        return value


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    NAMES = {"tensorflow", "tensorflow_datasets", "tensorflow_text", "google.cloud", "grain", "datasets",
             "transformers", "tensorboardX", "cloud_tpu_diagnostics", "ml_goodput_measurement", "orbax",
             "huggingface_hub", "pathwaysutils", "tunix", "vllm", "jetstream", "sentencepiece", "tiktoken",
             "safetensors", "pylatexenc", "tokamax", "drjax", "tokenizers", "jaxtyping"}

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in self.NAMES or ".".join(name.split(".")[:2]) in self.NAMES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = Stub(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


def stub(name):
    module = Stub(name)
    module.__path__ = []
    sys.modules[name] = module
    parent, _, leaf = name.rpartition(".")
    setattr(importlib.import_module(parent), leaf, module)


class MaxText:
    """The modules of MaxText that are used, imported once."""

    def __init__(self, source):
        sys.path.insert(0, source)
        sys.meta_path.append(Stubs())
        # A pair of sizes and their bound that only tokamax's own kernels take apart; not in use here.
        importlib.import_module("tokamax").RaggedDotGroupSizes = lambda sizes, _: sizes
        self.base = os.path.join(source, "maxtext", "configs", "base.yml")
        for name in ("maxtext.common.checkpointing", "maxtext.trainers.diloco", "maxtext.trainers.diloco.diloco",
                     "maxtext.checkpoint_conversion.utils.hf_model_configs", "maxtext.integration.tunix",
                     "maxtext.integration.tunix.tunix_adapter"):
            stub(name)
        self.pyconfig = importlib.import_module("maxtext.configs.pyconfig")
        self.creation = importlib.import_module("maxtext.utils.model_creation_utils")
        self.utils = importlib.import_module("maxtext.utils.maxtext_utils")
        self.rngs = importlib.import_module("maxtext.utils.maxtext_utils_nnx")
        self.optimizers = importlib.import_module("maxtext.optimizers.optimizers")
        self.state = importlib.import_module("maxtext.common.train_state_nnx")
        self.train = importlib.import_module("maxtext.trainers.pre_train.train")
        self.mtp = importlib.import_module("maxtext.layers.multi_token_prediction")


FIXED = dict(run_name="golden", base_output_directory="/tmp/maxtext_golden", enable_checkpointing=False,
             dataset_type="synthetic", hardware="cpu", log_config=False, skip_jax_distributed_system=True,
             tokenizer_path="none", attention="dot_product", enable_nnx=True, pure_nnx=True, pure_nnx_decoder=True,
             override_model_config=True, max_prefill_predict_length=8)

# ---- cases ----

DEEPSEEK = dict(base_emb_dim=32, base_num_query_heads=2, base_num_kv_heads=2, base_mlp_dim=64, base_moe_mlp_dim=16,
                base_num_decoder_layers=3, first_num_dense_layers=1, vocab_size=96, num_experts=8,
                num_experts_per_tok=2, shared_experts=1, q_lora_rank=16, kv_lora_rank=8, qk_nope_head_dim=8,
                qk_rope_head_dim=8, v_head_dim=12, max_position_embeddings=64, original_max_position_embeddings=16,
                rope_factor=4, mtp_num_layers=1, sparse_matmul=True, megablox=False)
DEEPSEEK3 = dict(DEEPSEEK, model_name="deepseek3-tiny")
DEEPSEEK2 = dict(DEEPSEEK, model_name="deepseek2-16b", q_lora_rank=0, shared_experts=2)
DENSE = dict(base_emb_dim=32, base_num_query_heads=4, base_num_kv_heads=2, head_dim=8, base_mlp_dim=48,
             base_num_decoder_layers=2, vocab_size=96)
LLAMA3 = dict(DENSE, model_name="llama3-8b")
EXPERTS = dict(DENSE, base_mlp_dim=24, base_moe_mlp_dim=24, num_experts=4, num_experts_per_tok=2,
               sparse_matmul=True, megablox=False)
MIXTRAL = dict(EXPERTS, model_name="mixtral-8x7b")
QWEN3 = dict(DENSE, model_name="qwen3-0.6b")
QWEN3_MOE = dict(EXPERTS, model_name="qwen3-30b-a3b", num_experts=8, num_experts_per_tok=3)
TILES = {f"{m}_tile_{p}_{d}": {"batch_seq": 32, "embed_dim": 32, "mlp_dim": 16}[d]
         for m in ("wi", "wo") for p in ("fwd", "dlhs", "drhs") for d in ("batch_seq", "embed_dim", "mlp_dim")}
GMM = dict(TILES, megablox=True)
MTP = ("none", "fp8", "fp8mtp")
PLAIN = ("none", "fp8")
TRAIN = dict(learning_rate=3e-3, steps=10, warmup_steps_fraction=0.1, train=4)

# name -> (overrides, arms). Beside MaxText's keys: data (see `batch`), rows and length of the batch, train (steps).
CASES = {
    "ds3": (DEEPSEEK3, MTP),
    "ds3_gmm": ({**DEEPSEEK3, **GMM}, MTP),
    "ds3_dense_experts": ({**DEEPSEEK3, "sparse_matmul": False}, MTP),
    "ds3_scan": ({**DEEPSEEK3, "scan_layers": True, "base_num_decoder_layers": 4}, MTP),
    "ds3_scan_axis0": ({**DEEPSEEK3, "scan_layers": True, "param_scan_axis": 0}, ("none",)),
    "ds3_groups": ({**DEEPSEEK3, "num_experts": 16, "num_experts_per_tok": 4, "n_routing_groups": 4,
                    "topk_routing_group": 2}, MTP),
    "ds3_mtp2": ({**DEEPSEEK3, "mtp_num_layers": 2, "mtp_eval_target_module": 2}, MTP),
    "ds3_mtp3": ({**DEEPSEEK3, "mtp_num_layers": 3, "data": "odd", "mtp_eval_target_module": 3,
                  "mtp_loss_scaling_factor": 0.3}, ("none", "fp8mtp")),
    "ds3_qlora0": ({**DEEPSEEK3, "q_lora_rank": 0}, MTP),
    "ds3_sliced": ({**DEEPSEEK3, "use_sliced_mla_proj": True}, MTP),
    "ds3_sliced_qlora0": ({**DEEPSEEK3, "use_sliced_mla_proj": True, "q_lora_rank": 0}, ("none", "fp8mtp")),
    "ds3_balance": ({**DEEPSEEK3, "load_balance_loss_weight": 0.02}, MTP),
    "ds3_no_bias": ({**DEEPSEEK3, "routed_bias": False}, PLAIN),
    "ds3_all_experts": ({**DEEPSEEK3, "num_experts": 4, "num_experts_per_tok": 4}, PLAIN),
    "ds3_shared2": ({**DEEPSEEK3, "shared_experts": 2, "first_num_dense_layers": 2}, PLAIN),
    "ds3_no_dense": ({**DEEPSEEK3, "first_num_dense_layers": 0, "base_num_decoder_layers": 2,
                      "base_mlp_dim": 16}, PLAIN),
    "ds3_odd": ({**DEEPSEEK3, "data": "odd", "rows": 4, "mtp_eval_target_module": 1}, MTP),
    "ds3_padded": ({**DEEPSEEK3, "data": "padded", "rows": 3}, MTP),
    "ds3_long": ({**DEEPSEEK3, "length": 48, "rows": 1, "data": "plain", "rope_factor": 3}, PLAIN),
    "ds3_no_yarn": ({**DEEPSEEK3, "rope_type": "default"}, ("none",)),
    "ds3_f32_flags": ({**DEEPSEEK3, "float32_logits": True, "float32_qk_product": True, "float32_gate_logits": True,
                       "dtype": "bfloat16"}, ("none",)),
    "ds3_bf16": ({**DEEPSEEK3, "dtype": "bfloat16"}, MTP),
    "ds3_bf16_weights": ({**DEEPSEEK3, "dtype": "bfloat16", "weight_dtype": "bfloat16"}, ("none", "fp8mtp")),
    "ds3_f32_on_bf16_weights": ({**DEEPSEEK3, "weight_dtype": "bfloat16"}, ("none", "fp8mtp")),
    "ds3_tied": ({**DEEPSEEK3, "logits_via_embedding": True}, PLAIN),
    "ds3_z": ({**DEEPSEEK3, "z_loss_multiplier": 0.01}, PLAIN),
    "llama3_absmax": ({**LLAMA3, "weight_quantization_calibration_method": "absmax,0.8",
                       "act_quantization_calibration_method": "absmax,0.7",
                       "bwd_quantization_calibration_method": "absmax,0.9"}, ("fp8",)),
    "llama3_rms": ({**LLAMA3, "weight_quantization_calibration_method": "rms,4",
                    "act_quantization_calibration_method": "rms,6",
                    "bwd_quantization_calibration_method": "rms,7"}, ("fp8",)),
    # gmm, since Qwix's ragged_dot ignores calibration methods, which Octet does not
    "ds3_calibrated": ({**DEEPSEEK3, **GMM, "weight_quantization_calibration_method": "absmax,0.8",
                        "act_quantization_calibration_method": "rms,6",
                        "bwd_quantization_calibration_method": "absmax,0.9"}, ("fp8mtp",)),
    "ds3_fixed": ({**DEEPSEEK3, **GMM, "weight_quantization_calibration_method": "fixed,-2,2",
                   "act_quantization_calibration_method": "fixed,4",
                   "bwd_quantization_calibration_method": "fixed,1"}, ("fp8mtp",)),
    "ds3_sparse": ({**DEEPSEEK3, "weight_sparsity_n": 2, "weight_sparsity_m": 4,
                    "weight_sparsity_start_step": 0, "weight_sparsity_update_step": 1}, ("fp8",)),
    "ds3_gelu": ({**DEEPSEEK3, "mlp_activations": ["gelu", "linear"]}, PLAIN),
    "ds3_fused_mlp": ({**DEEPSEEK3, "fused_mlp": True}, PLAIN),
    "ds2": (DEEPSEEK2, MTP),
    "ds2_qlora": ({**DEEPSEEK2, "q_lora_rank": 16, "routed_scaling_factor": 1.5}, PLAIN),
    "ds2_scan": ({**DEEPSEEK2, "scan_layers": True, "load_balance_loss_weight": 0.03}, PLAIN),
    "ds2_groups": ({**DEEPSEEK2, "n_routing_groups": 4, "topk_routing_group": 2, "num_experts": 16}, PLAIN),
    "ds2_capacity": ({**DEEPSEEK2, "sparse_matmul": False, "capacity_factor": 1.25}, PLAIN),
    "llama3": (LLAMA3, PLAIN),
    "llama3_mtp": ({**LLAMA3, "mtp_num_layers": 1, "mtp_eval_target_module": 1}, MTP),
    "llama3_scan": ({**LLAMA3, "scan_layers": True, "base_num_decoder_layers": 3}, PLAIN),
    "llama3_tied": ({**LLAMA3, "logits_via_embedding": True, "mtp_num_layers": 1}, MTP),
    "llama3_tied_plain": ({**LLAMA3, "logits_via_embedding": True, "normalize_embedding_logits": False}, ("none",)),
    "llama3_int8": (LLAMA3, ("int8",)),
    "llama3_fp8_e5m2": (LLAMA3, ("fp8_e5m2",)),
    "llama3_mha": ({**LLAMA3, "base_num_kv_heads": 4}, ("none",)),
    "llama3_mqa": ({**LLAMA3, "base_num_kv_heads": 1}, ("none",)),
    "llama3_soft_caps": ({**LLAMA3, "attn_logits_soft_cap": 2.0, "final_logits_soft_cap": 3.0}, PLAIN),
    "llama3_window": ({**LLAMA3, "attention_type": "local_sliding", "sliding_window_size": 5}, PLAIN),
    "llama3_fused": ({**LLAMA3, "fused_qkv": True, "fused_mlp": True}, PLAIN),
    "llama3_f32_attention": ({**LLAMA3, "dtype": "bfloat16", "float32_logits": True,
                              "float32_qk_product": True}, ("none",)),
    "llama3_bf16": ({**LLAMA3, "dtype": "bfloat16"}, PLAIN),
    "llama3_bf16_tied": ({**LLAMA3, "dtype": "bfloat16", "logits_via_embedding": True,
                          "logits_dot_in_fp32": True}, ("none",)),
    "llama3_z": ({**LLAMA3, "z_loss_multiplier": 0.05, "mtp_num_layers": 1}, ("none",)),
    "llama3_relu": ({**LLAMA3, "mlp_activations": ["relu"]}, ("none",)),
    "llama3_odd": ({**LLAMA3, "data": "odd", "rows": 5, "mtp_num_layers": 2}, ("none", "fp8mtp")),
    "llama3_default_scale": ({**LLAMA3, "global_parameter_scale": 2}, ("none",)),
    "llama3.1": ({**DENSE, "model_name": "llama3.1-8b"}, PLAIN),
    "llama3.1_scaled": ({**DENSE, "model_name": "llama3.1-8b", "rope_type": "llama3.1", "rope_use_scale": True,
                         "length": 40, "head_dim": 16}, PLAIN),
    "llama2": ({**DENSE, "model_name": "llama2-7b", "base_num_kv_heads": 4}, PLAIN),
    "mistral": ({**DENSE, "model_name": "mistral-7b"}, PLAIN),
    "mixtral": (MIXTRAL, PLAIN),
    "mixtral_gmm": ({**MIXTRAL, **GMM, "base_mlp_dim": 32, "base_moe_mlp_dim": 32}, PLAIN),
    "mixtral_mtp": ({**MIXTRAL, "mtp_num_layers": 1}, MTP),
    "mixtral_dense_experts": ({**MIXTRAL, "sparse_matmul": False}, PLAIN),
    "mixtral_capacity": ({**MIXTRAL, "sparse_matmul": False, "capacity_factor": 1.0}, PLAIN),
    "mixtral_balance": ({**MIXTRAL, "load_balance_loss_weight": 0.05}, PLAIN),
    "mixtral_balance_dense": ({**MIXTRAL, "load_balance_loss_weight": 0.05, "sparse_matmul": False}, ("none",)),
    "mixtral_balance_capacity": ({**MIXTRAL, "load_balance_loss_weight": 0.05, "sparse_matmul": False,
                                  "capacity_factor": 1.5}, ("none",)),
    "mixtral_scan": ({**MIXTRAL, "scan_layers": True, "load_balance_loss_weight": 0.05}, PLAIN),
    "mixtral_bf16": ({**MIXTRAL, "dtype": "bfloat16"}, PLAIN),
    "mixtral_gate_f32": ({**MIXTRAL, "dtype": "bfloat16", "float32_gate_logits": True}, ("none",)),
    "mixtral_weight_sum": ({**MIXTRAL, "dtype": "bfloat16", "float32_weight_sum": False}, ("none",)),
    "mixtral_fused_weights": ({**MIXTRAL, "prefuse_moe_weights": True}, ("none",)),
    "qwen3": (QWEN3, PLAIN),
    "qwen3_untied": ({**QWEN3, "logits_via_embedding": False, "scan_layers": True}, PLAIN),
    "qwen3_no_norm": ({**QWEN3, "use_qk_norm": False}, ("none",)),
    "qwen3_norm_plain": ({**QWEN3, "qk_norm_with_scale": False}, ("none",)),
    "qwen3_moe": (QWEN3_MOE, PLAIN),
    "qwen3_moe_dense": ({**QWEN3_MOE, "sparse_matmul": False}, ("none",)),
    "qwen3_moe_plain": ({**QWEN3_MOE, "norm_topk_prob": False}, PLAIN),
    "qwen3_moe_balance": ({**QWEN3_MOE, "load_balance_loss_weight": 0.02, "scan_layers": True}, PLAIN),
    "qwen3_moe_bf16": ({**QWEN3_MOE, "dtype": "bfloat16"}, ("none",)),
    "qwen2": ({**DENSE, "model_name": "qwen2.5-1.5b"}, PLAIN),
    "gemma": ({**DENSE, "model_name": "gemma-2b"}, PLAIN),
    "gemma2": ({**DENSE, "model_name": "gemma2-2b", "sliding_window_size": 6}, PLAIN),
    "gemma3": ({**DENSE, "model_name": "gemma3-4b", "sliding_window_size": 6, "base_num_decoder_layers": 7}, PLAIN),
    "olmo3": ({**DENSE, "model_name": "olmo3-7b", "base_num_decoder_layers": 4, "sliding_window_size": 6}, PLAIN),
    "gpt_oss": ({**EXPERTS, "model_name": "gpt-oss-20b", "sliding_window_size": 6}, PLAIN),
    # training
    "train_adamw": ({**DEEPSEEK3, **TRAIN}, MTP),
    "train_clip": ({**LLAMA3, **TRAIN, "gradient_clipping_threshold": 0.05, "adam_weight_decay": 0.3}, PLAIN),
    "train_no_clip": ({**LLAMA3, **TRAIN, "gradient_clipping_threshold": 0.0, "adam_b1": 0.8, "adam_b2": 0.99,
                       "adam_eps": 1e-6, "adam_eps_root": 1e-9}, ("none",)),
    "train_mask": ({**LLAMA3, **TRAIN, "adamw_mask": ["norm", "embedding$", "decoder/layers_0/mlp/w[io]_?0?/"],
                    "adam_weight_decay": 0.5}, ("none",)),
    "train_sgd": ({**LLAMA3, **TRAIN, "opt_type": "sgd", "learning_rate": 0.1}, PLAIN),
    "train_accumulate": ({**LLAMA3, **TRAIN, "gradient_accumulation_steps": 2, "rows": 2, "data": "odd"},
                         ("none", "fp8")),
    "train_accumulate_mtp": ({**DEEPSEEK3, **TRAIN, "gradient_accumulation_steps": 3, "rows": 1}, ("none",)),
    "train_bias_update": ({**DEEPSEEK3, **TRAIN, "routed_bias_update_rate": 0.01, "scan_layers": True}, ("none",
                                                                                                         "fp8mtp")),
    "train_schedule": ({**LLAMA3, **TRAIN, "steps": 6, "learning_rate_schedule_steps": 4, "train": 6,
                        "warmup_steps_fraction": 0.5, "learning_rate_final_fraction": 0.2}, ("none",)),
    "train_bf16_weights": ({**LLAMA3, **TRAIN, "dtype": "bfloat16", "weight_dtype": "bfloat16"}, ("none",)),
    "train_mixtral": ({**MIXTRAL, **TRAIN, "load_balance_loss_weight": 0.05, "scan_layers": True}, PLAIN),
}
NOT_MAXTEXT = ("data", "rows", "length", "train")
ARMS = {
    "none": dict(quantization="", use_qwix_quantization=False),
    "fp8": dict(quantization="fp8_full", use_qwix_quantization=True),
    "fp8mtp": dict(quantization="fp8_full", use_qwix_quantization=True, quantize_mtp=True),
    "int8": dict(quantization="int8", use_qwix_quantization=True),
    "fp8_e5m2": dict(quantization="fp8_e5m2", use_qwix_quantization=True),
}


def grown(overrides, factor):
    """The same model, wider and deeper; what must divide still does."""
    wide = {"base_emb_dim", "base_mlp_dim", "base_moe_mlp_dim", "vocab_size", "q_lora_rank", "kv_lora_rank"}
    return {k: v * factor if k in wide else v + factor - 1 if k == "base_num_decoder_layers" else v
            for k, v in overrides.items()}


def fowler(name):
    """FNV-1a, 64 bits."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def uniform(name, seed, count):
    """count numbers in [-1, 1), exact in float32: splitmix64's upper 24 bits, started at the name's hash."""
    with np.errstate(over="ignore"):
        gamma = np.uint64(0x9E3779B97F4A7C15)
        z = np.uint64(fowler(name)) + gamma * (np.uint64(seed) * np.uint64(1 << 32)
                                               + np.arange(1, count + 1, dtype=np.uint64))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(40)).astype(np.int64) - (1 << 23)).astype(np.float32) / np.float32(1 << 23)


def batch(kind, rows, length, vocab, rng):
    """plain: one document a row. packed: row 0 holds two, later rows one with a padded tail. odd: documents of one
    token, padding in front and between, masked targets. padded: as packed, the last row all padding."""
    shape = (rows, length)
    out = {k: np.zeros(shape, np.int32) for k in ("inputs", "inputs_position", "inputs_segmentation", "targets",
                                                  "targets_position", "targets_segmentation")}
    for row in range(rows):
        if kind == "plain":
            lengths = [length]
        elif kind == "odd":
            lengths = ([1] * length, [-2, 5, -3, 1, 1, 6], [3, 1, 1, length - 9, 4], [length - 1, 1],
                       [-length + 1, 1])[row % 5]
        elif kind == "padded" and row == rows - 1:
            lengths = []
        else:
            lengths = [length * 5 // 8, length - length * 5 // 8] if row == 0 else [length - 5 - row]
        at, segment = 0, 0
        for n in lengths:
            if n < 0:
                at -= n
                continue
            n = min(n, length - at)
            segment += 1
            text = rng.integers(1, vocab, n + 1)
            where = (row, slice(at, at + n))
            out["inputs"][where], out["targets"][where] = text[:-1], text[1:]
            out["inputs_position"][where] = out["targets_position"][where] = np.arange(n)
            out["inputs_segmentation"][where] = segment
            out["targets_segmentation"][where] = segment
            if kind == "odd":
                out["targets_segmentation"][where] *= rng.random(n) < 0.8
            at += n
    return out


# ---- files ----

FILE_TYPES = {"float32": "F32", "bfloat16": "BF16", "int32": "I32"}


def write_file(path, tensors, metadata):
    stored = {name: np.ascontiguousarray(t) for name, t in tensors.items()}
    order = sorted(stored, key=lambda name: (-stored[name].dtype.itemsize, name))
    header, offset = {"__metadata__": {k: str(v) for k, v in metadata.items()}}, 0
    for name in order:
        array = stored[name]
        header[name] = {"dtype": FILE_TYPES[array.dtype.name], "shape": list(np.shape(tensors[name])),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(stored[name].tobytes())


def compact(kind, named, sample):
    """Whole arrays up to `sample` numbers; of larger ones every n-th number and the norm."""
    out = {}
    for name, array in named.items():
        flat = np.asarray(array, np.float32).reshape(-1)
        if flat.size <= sample:
            out[f"{kind}/{name}"] = np.asarray(array, np.float32)
        else:
            step = flat.size // sample
            out[f"{kind}_sample/{name}"] = flat[::step][:sample]
            out[f"{kind}_norm/{name}"] = np.float32([np.sqrt(np.sum(flat.astype(np.float64) ** 2))])
    return out


# ---- one run ----

class Run:
    def __init__(self, maxtext, name, overrides, arm, seed):
        import jax
        from flax import nnx
        self.maxtext, self.name, self.arm, self.jax, self.nnx = maxtext, name, arm, jax, nnx
        self.case = {k: overrides[k] for k in NOT_MAXTEXT if k in overrides}
        rows, length = self.case.get("rows", 2), self.case.get("length", 24)
        self.overrides = {k: v for k, v in overrides.items() if k not in NOT_MAXTEXT}
        self.overrides.setdefault("scan_layers", False)
        self.overrides.setdefault("dtype", "float32")
        self.overrides.setdefault("weight_dtype", "float32")
        self.overrides.update(ARMS[arm], per_device_batch_size=rows, max_target_length=length)
        self.overrides.setdefault("enable_dropout", False)
        argv = ["", maxtext.base] + [f"{k}={self.text(v)}" for k, v in {**FIXED, **self.overrides}.items()]
        self.config = maxtext.pyconfig.HyperParameters(maxtext.pyconfig._initialize_pydantic(argv))
        self.seed = seed
        accumulate = self.config.gradient_accumulation_steps
        rng = np.random.default_rng(fowler(name) % (1 << 32) + seed)
        self.data = batch(self.case.get("data", "packed"), rows * accumulate, length, self.config.vocab_size, rng)
        self.mesh = maxtext.utils.get_mesh_from_config(self.config)
        with self.context():
            self.model = nnx.eval_shape(lambda: maxtext.creation.create_model(
                self.config, self.mesh, rngs=maxtext.rngs.create_nnx_rngs(self.config)))
            self.fill()

    def context(self):
        from flax import linen
        stack = contextlib.ExitStack()
        stack.enter_context(self.mesh)
        stack.enter_context(linen.logical_axis_rules(self.config.logical_axis_rules))
        return stack

    @staticmethod
    def text(value):
        if isinstance(value, bool):
            return "true" if value else "false"
        return json.dumps(value) if isinstance(value, (list, dict)) else str(value)

    def fill(self):
        """Numbers of about the size that MaxText starts with, but no norm's scale is 1 nor a bias 0: offset +
        amplitude * uniform, in float32, then in weight_dtype."""
        jax, nnx = self.jax, self.nnx
        state = nnx.state(self.model)
        self.formula = {}
        for path, variable in nnx.to_flat_state(state):
            shape = variable.get_value()
            if not isinstance(variable, nnx.Param):  # states of random generators, which nothing here draws from
                key = jax.dtypes.issubdtype(shape.dtype, jax.dtypes.prng_key)
                variable.set_value(jax.random.key(0) if key else jax.numpy.zeros(shape.shape, shape.dtype))
                continue
            name = "/".join(map(str, path))
            offset, amplitude = self.formula[name] = self.spread(name, list(shape.shape))
            numbers = offset + amplitude * uniform(name, self.seed, int(np.prod(shape.shape)))
            variable.set_value(jax.numpy.asarray(numbers.reshape(shape.shape)).astype(shape.dtype))
        nnx.update(self.model, state)

    def spread(self, name, shape):
        if re.search(r"(layers|block)/", name) and self.config.scan_layers and "mtp_block" not in name:
            del shape[self.config.param_scan_axis]
        leaf = name.rsplit("/", 1)[1]
        if leaf == "scale":
            return np.float32([1, 0.3])
        if "bias" in leaf or leaf == "sinks":
            return np.float32([0, 0.25])
        if leaf == "embedding":
            return np.float32([0, 1.7])
        fan_in = shape[0] * shape[1] if name.endswith("out/kernel") else shape[0] if leaf == "kernel" else shape[1]
        return np.float32([0, round((3 / fan_in) ** 0.5, 4)])

    def metadata(self, **more):
        return dict(more, overrides=json.dumps(self.overrides), arm=self.arm, tag=self.name)

    def losses(self, aux, total):
        out = {"total": total, "main": aux["xent_sum"] / (aux["total_weights"] + self.maxtext.train.EPS),
               "mtp_scaled": aux["mtp_loss"], "xent_sum": aux["xent_sum"], "total_weights": aux["total_weights"],
               "moe_lb": aux["moe_lb_loss"], "z": aux["z_loss"]}
        return {f"loss/{k}": np.float32(v).reshape(1) for k, v in out.items()}

    def pass_and_gradients(self, sample):
        jax, nnx, jnp = self.jax, self.nnx, self.jax.numpy
        graph, parameters, rest = nnx.split(self.model, nnx.Param, ...)
        data = {k: jnp.asarray(v[: self.config.micro_batch_size_to_train_on]) for k, v in self.data.items()}

        def loss(parameters, rest, data):
            model = nnx.merge(graph, parameters, rest, copy=True)
            seen = []
            with self.cross_entropy_watched(seen):
                total, aux = self.maxtext.train.loss_fn(model, self.config, dict(data), None, None, is_train=True)
            kept = {k: aux[k] for k in ("xent_sum", "total_weights", "mtp_loss", "moe_lb_loss", "z_loss")}
            return total, dict(kept, logits=seen[0])

        (total, aux), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(parameters, rest, data)
        out = {"logits": np.asarray(aux["logits"], np.float32)}
        out.update(self.losses(aux, total))
        named = {"/".join(map(str, p)): np.asarray(v.get_value(), np.float32)
                 for p, v in nnx.to_flat_state(gradients)}
        norm = sum(float(np.sum(g.astype(np.float64) ** 2)) for g in named.values()) ** 0.5
        out["grad_norm"] = np.float32([norm])
        out.update(compact("grad", named, sample))
        if self.config.mtp_eval_target_module > 0:
            out["acceptance"] = np.float32([self.acceptance(graph, parameters, rest, data)])
        return out

    @contextlib.contextmanager
    def cross_entropy_watched(self, seen):
        """The logits are what train.py hands to its cross entropy."""
        tools = self.maxtext.train.max_utils
        original = tools.cross_entropy_with_logits

        def watched(logits, *arguments, **named):
            seen.append(logits)
            return original(logits, *arguments, **named)

        tools.cross_entropy_with_logits = watched
        try:
            yield
        finally:
            tools.cross_entropy_with_logits = original

    def acceptance(self, graph, parameters, rest, data):
        def rate(parameters, rest, data):
            model = self.nnx.merge(graph, parameters, rest, copy=True)
            _, aux = self.maxtext.train.loss_fn(model, self.config, dict(data), None, None, is_train=False)
            return self.maxtext.mtp.calculate_mtp_acceptance_rate(aux["intermediate_outputs"], self.config)
        return self.jax.jit(rate)(parameters, rest, data)

    def train(self, out, sample):
        jax, nnx, maxtext = self.jax, self.nnx, self.maxtext
        schedule = maxtext.utils.create_learning_rate_schedule(self.config)
        rule = maxtext.optimizers.get_optimizer(self.config, schedule, self.model)
        state = maxtext.state.TrainStateNNX(self.model, nnx.Optimizer(self.model, rule, wrt=nnx.Param))
        graph, state = nnx.split(state)
        one = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec())
        placed = jax.tree.map(lambda x: one, nnx.state(self.model, nnx.Param))
        data = {k: jax.numpy.asarray(v) for k, v in self.data.items()}
        step = jax.jit(lambda state, data: maxtext.train.train_step(graph, self.config, None, placed, state,
                                                                    dict(data)))
        per_step = []
        for i in range(self.case["train"]):
            state, metrics = step(state, data)
            row = {k.split("/")[1]: float(v) for k, v in metrics["scalar"].items()}
            per_step.append(dict(row, lr=float(schedule(i))))
            if i in (0, self.case["train"] - 1):
                named = {"/".join(map(str, p)): np.asarray(v.get_value(), np.float32)
                         for p, v in nnx.to_flat_state(nnx.state(nnx.merge(graph, state).model, nnx.Param))}
                write_file(out / f"{self.name}.{self.arm}.step{i + 1}.safetensors",
                           compact("param", named, sample), self.metadata(step=i + 1))
        (out / f"{self.name}.{self.arm}.opt.json").write_text(
            json.dumps({"config": self.overrides, "arm": self.arm, "per_step": per_step}, indent=1) + "\n")


def make(maxtext, name, overrides, arm, arguments):
    out = arguments.out
    run = Run(maxtext, name, overrides, arm, arguments.seed)
    write_file(out / f"{name}.params.safetensors", run.formula, {"formula": "uniform", "seed": arguments.seed})
    write_file(out / f"{name}.data.safetensors", run.data, {})
    with run.context():
        if run.config.gradient_accumulation_steps == 1:
            write_file(out / f"{name}.{arm}.out.safetensors", run.pass_and_gradients(arguments.sample),
                       run.metadata())
        if "train" in run.case:
            run.train(out, arguments.sample)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--maxtext", required=True)
    parser.add_argument("--case", action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=256)
    parser.add_argument("--grow", type=int, default=1)
    parser.add_argument("--arms")
    parser.add_argument("--missing", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    maxtext = MaxText(arguments.maxtext)
    failed = []
    for name, (overrides, arms) in CASES.items():
        if not any(fnmatch.fnmatch(name, p) for p in arguments.case or ["*"]):
            continue
        for arm in arms:
            if arguments.arms and arm not in arguments.arms.split(","):
                continue
            if arguments.missing and any(arguments.out.glob(f"{name}.{arm}.o*")):
                continue
            try:
                make(maxtext, name, grown(overrides, arguments.grow), arm, arguments)
                print("made", name, arm, flush=True)
            except Exception as error:  # what MaxText refuses or crashes on is told, and the others go on
                traceback.print_exc()
                failed.append(f"{name} {arm}: {type(error).__name__}: {re.sub(chr(10), ' ', str(error))[:300]}")
    print("failed:", len(failed), *failed, sep="\n")


if __name__ == "__main__":
    main()
