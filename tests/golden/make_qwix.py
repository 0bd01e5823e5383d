#!/usr/bin/env python3
"""Reference data of quantized arithmetic, computed by the real Qwix on XLA's CPU backend.

Writes safetensors files of format qwix-golden-1: the tensors of one case, and in the metadata the case itself
as JSON (operation, rule, dimension numbers, ...). Which tensors a kind of file has is said in
tests/golden/data/README.md. Nothing of Qwix is reimplemented here: the operations run under its QtProvider, and
the quantized operands are taken from the calls of its own quantize_with_scale_zero_point.

Needs: qwix 0.1.8, jax 0.10.2 (CPU), flax 0.12.8; for gmm also a checkout of MaxText (--maxtext .../src).
Cases are random and depend only on --seed, the kind, the case's number and --variants.

usage: make_qwix.py OUT --kinds casts,quantize,dot,qarray,ragged,gmm,einsum,conv,static --count 100 [--seed 1]
       [--first 0] [--variants 1] [--maxtext DIR]   variants: cases in a row that differ in their numbers only
"""
import argparse
import dataclasses
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import pathlib
import struct
import sys
import types
import zlib
from unittest.mock import MagicMock

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import qwix
from flax import linen as nn
from qwix._src.core import dot_general, numerics, qarray, sparsity

FLOAT, BRAIN = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
QTYPES = {"e4m3": jnp.float8_e4m3fn, "e5m2": jnp.float8_e5m2, "int8": jnp.int8, "int4": jnp.int4,
          "e2m1": jnp.float4_e2m1fn, "mxfp8": "mxfp8", "mxfp4": "mxfp4", "nvfp4": "nvfp4"}
BLOCK = {"mxfp8": 32, "mxfp4": 32, "nvfp4": 16}
QWIX_ERRORS = (ValueError, AssertionError, IndexError, NotImplementedError, TypeError, ZeroDivisionError)


# ---- files ----

FILE_TYPES = {"float32": "F32", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
              "int32": "I32"}


def storable(array):
    """As it is stored: integers as I32, e2m1 as its value in F32."""
    array = np.asarray(array)
    if array.dtype == ml_dtypes.float4_e2m1fn:
        return array.astype(np.float32)
    if array.dtype in (np.dtype(np.int8), np.dtype(ml_dtypes.int4), np.dtype(np.int64)):
        return array.astype(np.int32)
    return array


def write_file(path, tensors, case):
    stored = {name: np.ascontiguousarray(storable(t)) for name, t in tensors.items()}
    order = sorted(stored, key=lambda name: (-stored[name].dtype.itemsize, name))
    header, offset = {}, 0
    for name in order:
        array = stored[name]
        header[name] = {"dtype": FILE_TYPES[array.dtype.name], "shape": list(np.asarray(tensors[name]).shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    header["__metadata__"] = {"format": "qwix-golden-1", "case": json.dumps(case, sort_keys=True)}
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(stored[name].tobytes())


# ---- numbers ----

def pick(rng, *choices):
    return choices[int(rng.integers(len(choices)))]


VALUES = [None]  # the generator of numbers; shapes and rules come from another, so that cases can share them


def numbers(shape, dtype, special=None):
    """Normal numbers whose size differs by row and column; or rows of special values."""
    rng = VALUES[0]
    shape = tuple(shape)
    x = rng.standard_normal(shape) * np.exp(rng.normal(0, 1))
    for axis, dim in enumerate(shape):
        if rng.random() < 0.5:
            x = x * np.exp(rng.normal(0, 1.5, dim)).reshape([dim if a == axis else 1 for a in range(len(shape))])
    x = x.astype(np.float32)
    flat = x.reshape(-1)
    if special and flat.size:
        if "zeros" in special:
            view = x.reshape(-1, shape[-1]) if shape else flat.reshape(1, 1)
            view[rng.random(view.shape[0]) < 0.4] = 0
            view[rng.random(view.shape[0]) < 0.1] *= -0.0
        if "outlier" in special:
            flat[rng.integers(flat.size)] = pick(rng, 3e4, -1e6, 1e30)
        if "tiny" in special:
            flat[rng.random(flat.size) < 0.7] *= np.float32(pick(rng, 1e-18, 1e-25, 1e-38, 1e-42))
        if "ties" in special:
            flat[:] = np.rint(flat * 16) / 16
            flat[rng.integers(flat.size)] = pick(rng, 448, 127.5, 7.5, 57344, 6)
        if "huge" in special:
            flat[:] *= np.float32(1e36) / max(float(np.abs(flat).max()), 1)
        # XLA's CPU backend drops NaN from the maximum of larger float32 arrays (which ones depends on the CPU).
        if "nan" in special and (flat.size <= 1000 or np.dtype(dtype) == BRAIN):
            flat[rng.integers(flat.size)] = np.nan
        if "inf" in special:
            flat[rng.integers(flat.size)] = pick(rng, np.inf, -np.inf)
        if "negative_zero" in special:
            flat[rng.random(flat.size) < 0.3] = -0.0
    return jnp.asarray(x.astype(np.dtype(dtype)))


def special_of(rng, share=0.25):
    if rng.random() >= share:
        return []
    return sorted({pick(rng, "zeros", "outlier", "tiny", "ties", "negative_zero", "nan", "inf", "zeros")
                   for _ in range(int(rng.integers(1, 3)))})


def calibration_of(rng, asymmetric=False, mostly_absmax=0.5):
    if rng.random() < mostly_absmax:
        return "absmax"
    symmetric = ["absmax,0.8", "absmax,1.5", "absmax,0.3", "rms,3", "rms,7", "fixed,-2,2", "fixed,1",
                 "fixed,-224,224", "fixed,-0.1,0.1", "ABSMAX"]
    if asymmetric and rng.random() < 0.5:
        return pick(rng, "minmax", "minmax,0.9", "fixed,-1,3", "fixed,-0.7,0.1", "fixed,0,3")
    return pick(rng, *symmetric)


# ---- what Qwix quantizes, taken from its own calls ----

class Recorder:
    FRAMES = {"_compute_gradient_for_operand", "dot_general_qt_fwd", "ragged_dot_qt_fwd", "ragged_dot_qt_bwd",
              "_fwd_quantize_activation_and_weight", "_bwd_quantize_gradient", "_quantize_operand"}

    def __init__(self):
        self.calls = []
        self.dots = []
        self.original = qarray.quantize_with_scale_zero_point
        qarray.quantize_with_scale_zero_point = self.quantize

    def quantize(self, array, qtype, scale, zero_point, noise_fn=None):
        result = self.original(array, qtype, scale, zero_point, noise_fn)
        frame = inspect.currentframe().f_back
        while frame is not None and frame.f_code.co_name not in self.FRAMES:
            frame = frame.f_back
        if frame is not None and not isinstance(array, jax.core.Tracer):
            self.calls.append((frame.f_code.co_name, dict(frame.f_locals), array, result))
        return result

    def forget(self):
        self.calls.clear()

    def tensors(self):
        """Named as in the files; the operands' order is dot_general's."""
        found, count = {}, {}
        for function, local, array, quantized in self.calls:
            k = count[function] = count.get(function, -1) + 1
            if function == "_compute_gradient_for_operand":
                gradient = "dlhs" if local["for_dlhs"] else "drhs"
                name = ("y_" if "y_how" in local else "g_") + gradient
                if name[0] == "g":
                    found[f"g_{gradient}_pre"] = array
            elif function == "dot_general_qt_fwd":
                name = "lhs" if array is local["lhs_in"] else "rhs"
            elif function in ("ragged_dot_qt_fwd", "_fwd_quantize_activation_and_weight"):
                rank = array.ndim
                name = "lhs" if rank == 2 else "rhs"
            elif function in ("ragged_dot_qt_bwd", "_bwd_quantize_gradient"):
                name = ("g_dlhs", "g_drhs")[k]
                found[f"{name}_pre"] = array
            else:
                name = "lhs" if local["for_lhs"] else "rhs"
            found.update(parts(name, quantized))
        return found


def parts(name, quantized):
    out = {f"{name}_q": quantized.qvalue, f"{name}_scale": quantized.scale}
    if quantized.zero_point is not None:
        out[f"{name}_zp"] = quantized.zero_point
    return out


RECORDER = Recorder()


# ---- rules ----

def real_rule(rule):
    """The JSON of a rule as Qwix's QtRule."""
    fields = dict(rule)
    for key in ("weight_qtype", "act_qtype", "bwd_qtype"):
        if fields.get(key):
            fields[key] = QTYPES[fields[key]]
    extra = dict(fields.get("additional_qt_config") or {})
    for key, value in extra.items():
        if key.endswith("_qtype") and value:
            extra[key] = QTYPES[value]
        if key == "sparsity_rule":
            extra[key] = sparsity.SparsityRule(weight_sparsity_n=value[0], weight_sparsity_m=value[1])
    if extra:
        fields["additional_qt_config"] = extra
    for key in ("act_batch_axes",):
        if key in fields:
            fields[key] = tuple(fields[key])
    return qwix.QtRule(**fields)


def described(value):
    if dataclasses.is_dataclass(value) and type(value).__name__ == "SparsityRule":
        return [value.weight_sparsity_n, value.weight_sparsity_m]
    if callable(value) and not isinstance(value, type) and not hasattr(value, "dtype"):
        return "function"
    if isinstance(value, type) or hasattr(value, "dtype"):
        return np.dtype(value).name
    return value


class Provider(qwix.QtProvider):
    """Qwix's own, remembering the settings it made."""
    config = None

    def _create_dot_general_qt_config(self, *arguments):
        config = super()._create_dot_general_qt_config(*arguments)
        Provider.config = {f.name: described(getattr(config, f.name)) for f in dataclasses.fields(config)}
        return config


class Op(nn.Module):
    """One operation; operand `weight` (0, 1 or None) is the module's parameter."""
    function: object
    weight: object
    value: object

    @nn.compact
    def __call__(self, *activations):
        operands = list(activations)
        if self.weight is not None:
            operands.insert(self.weight, self.param("w", lambda key: self.value))
        return self.function(*operands)


def run_under_rule(function, operands, weight, rule, backward, tensors, mutable=False):
    """Puts out, the cotangent g and the gradients into tensors; the recorder holds what was quantized."""
    module = Op(function, weight, None if weight is None else operands[weight])
    model = qwix.quantize_model(module, Provider([real_rule(rule)])) if rule is not None else module
    activations = [o for i, o in enumerate(operands) if i != weight]
    Provider.config = None

    def apply(*values):
        variables = {} if weight is None else {"params": {"w": values[weight]}}
        others = [v for i, v in enumerate(values) if i != weight]
        rngs = {"stochastic_rounding": jax.random.key(1)} if (rule or {}).get("bwd_stochastic_rounding") else None
        if mutable:
            return model.apply(variables, *others, mutable=["quant_stats"])[0]
        return model.apply(variables, *others, rngs=rngs)

    RECORDER.forget()
    if not backward:
        tensors["out"] = apply(*operands)
        return
    out, pull = jax.vjp(apply, *operands)
    tensors["g"] = backward(out)  # stays in the file when the backward pass raises
    tensors["dlhs"], tensors["drhs"] = pull(tensors["g"])
    tensors["out"] = out


# ---- dot_general ----

def letters_of(count, taken):
    return [chr(ord("a") + taken + i) for i in range(count)]


def dot_shape(rng, last=None, batches=None):
    """Random letters, sizes and dimension numbers; `last`: size of the last contracting axis listed."""
    counts = [pick(rng, 0, 0, 0, 1, 1, 2) if batches is None else batches, pick(rng, 1, 1, 1, 2, 2, 3),
              pick(rng, 1, 1, 1, 2, 0), pick(rng, 1, 1, 1, 2, 0)]
    if rng.random() < 0.02:
        counts[1] = 0
    batch, contract, left, right = (letters_of(n, sum(counts[:i])) for i, n in enumerate(counts))
    size = {}
    for letter in batch:
        size[letter] = pick(rng, 1, 2, 3)
    for letter in left + right:
        size[letter] = pick(rng, 1, 2, 3, 4, 5, 6, 7, 8, 16)
    for letter in contract:
        size[letter] = pick(rng, 1, 2, 3, 4, 5, 8, 16) if len(contract) > 1 else pick(rng, 1, 7, 16, 33, 64)
    order = list(rng.permutation(contract)) if contract else []
    if last and order:
        size[order[-1]] = last
        for letter in order[:-1]:
            size[letter] = pick(rng, 1, 2, 3)
    shuffle = (lambda names: [str(n) for n in rng.permutation(names)] if names else []) \
        if rng.random() < 0.6 else (lambda names: list(names))
    lhs = shuffle(batch + left + contract)
    rhs = shuffle(batch + contract + right)
    batch_order = shuffle(batch)
    dims = [[[lhs.index(c) for c in order], [rhs.index(c) for c in order]],
            [[lhs.index(b) for b in batch_order], [rhs.index(b) for b in batch_order]]]
    out = batch_order + [c for c in lhs if c in left] + [c for c in rhs if c in right]
    return ["".join(lhs), "".join(rhs), "".join(out)], size, dims


def dims_tuple(dims):
    return tuple(tuple(tuple(int(a) for a in axes) for axes in pair) for pair in dims)


FLAVOURS = ["plain", "plain", "plain", "calibration", "calibration", "mixed_qtypes", "tile_small", "tile_large",
            "tile_fraction", "bwd_tile", "pertensor", "fwd_only", "weight_only", "weight_only_bwd", "no_weight_qtype",
            "original_residuals", "residual_settings", "sparse", "micro", "micro_dot", "no_clipping", "asymmetric",
            "override", "no_rule", "tile_and_more", "integer", "stochastic", "large"]


def dot_rule(rng, flavour):
    """(rule, size wanted of the last contracting axis)."""
    rule = {"weight_qtype": "e4m3", "act_qtype": "e4m3", "bwd_qtype": "e5m2"}
    extra, last = {}, None
    floats = ("e4m3", "e5m2")
    if flavour == "calibration":
        for side in ("weight", "act", "bwd"):
            rule[f"{side}_calibration_method"] = calibration_of(rng, mostly_absmax=0.25)
    elif flavour == "mixed_qtypes":
        rule = {"weight_qtype": pick(rng, "int8", "e4m3", "e5m2", "e2m1", "int4"),
                "act_qtype": pick(rng, "e4m3", "e5m2", "int8"),
                "bwd_qtype": pick(rng, "e5m2", "e4m3", "int8", None)}
    elif flavour == "integer":
        kind = pick(rng, "int8", "int8", "int4")
        rule = {"weight_qtype": kind, "act_qtype": "int8", "bwd_qtype": pick(rng, "int8", "e5m2", None)}
        rule["act_calibration_method"] = calibration_of(rng)
    elif flavour in ("tile_small", "tile_and_more"):
        rule["tile_size"] = tile = pick(rng, 1, 2, 4, 8, 16, 32)
        last = tile * pick(rng, 1, 2, 4)
        if flavour == "tile_and_more":
            rule["bwd_weight_grad_tile_size"] = pick(rng, 1, 2, 0.5)
            rule["disable_channelwise_axes"] = pick(rng, True, False)
            rule["weight_calibration_method"] = calibration_of(rng)
            rule["act_calibration_method"] = calibration_of(rng)
            rule["act_qtype"] = pick(rng, "int8", "e4m3", None)
    elif flavour == "tile_large":
        rule["tile_size"] = tile = pick(rng, 128, 128, 160)
        last = tile * pick(rng, 1, 2, 3)
        rule["weight_qtype"], rule["act_qtype"] = pick(rng, *floats, "int8"), pick(rng, *floats)
        if rng.random() < 0.3:
            rule["act_calibration_method"] = calibration_of(rng)
    elif flavour == "tile_fraction":
        rule["tile_size"] = part = pick(rng, 0.25, 0.5, 1.0, 1 / 3)
        last = pick(rng, 12, 24, 48, 96, 256, 384, 512, 768)
    elif flavour == "bwd_tile":
        rule["bwd_weight_grad_tile_size"] = pick(rng, 1, 2, 4, 8, 0.25, 0.5, 1.0, 128)
        rule["bwd_calibration_method"] = calibration_of(rng)
    elif flavour == "pertensor":
        rule["disable_channelwise_axes"] = True
        for side in ("weight", "act", "bwd"):
            rule[f"{side}_calibration_method"] = calibration_of(rng, mostly_absmax=0.8)
    elif flavour == "fwd_only":
        rule["bwd_qtype"] = None
        rule["act_calibration_method"] = calibration_of(rng)
        rule["weight_calibration_method"] = calibration_of(rng)
    elif flavour in ("weight_only", "weight_only_bwd"):
        rule["act_qtype"] = None
        rule["weight_qtype"] = pick(rng, "e4m3", "int8", "e5m2", "int4", "e2m1")
        rule["weight_calibration_method"] = calibration_of(rng)
        if flavour == "weight_only":
            rule["bwd_qtype"] = None
    elif flavour == "no_weight_qtype":
        rule["weight_qtype"] = None
    elif flavour == "original_residuals":
        extra = {"use_original_residuals": True}
        for side in ("dlhs", "drhs"):
            if rng.random() < 0.7:
                extra[f"{side}_residual_qtype"] = pick(rng, "e4m3", "e5m2", "int8")
                extra[f"{side}_residual_calibration_method"] = calibration_of(rng)
                extra[f"{side}_residual_disable_channelwise_axes"] = pick(rng, True, False)
        if rng.random() < 0.3:
            rule["bwd_weight_grad_tile_size"] = pick(rng, 1, 2, 0.5)
    elif flavour == "residual_settings":
        # Take effect only where the forward pass left the operand unquantized or tiled it.
        extra = {"dlhs_residual_qtype": pick(rng, "e4m3", "int8"), "drhs_residual_qtype": pick(rng, "e4m3", "e5m2")}
        if rng.random() < 0.5:
            rule["act_qtype"] = None
        else:
            rule["tile_size"] = tile = pick(rng, 4, 32, 128)
            last = 2 * tile
    elif flavour == "sparse":
        n, m = pick(rng, (2, 4), (1, 4), (1, 2), (3, 4), (4, 8), (2, 5))
        extra = {"sparsity_rule": [n, m]}
        rule["weight_calibration_method"] = calibration_of(rng)
        if rng.random() < 0.3:
            rule["bwd_qtype"] = None
    elif flavour == "micro":
        kind = pick(rng, "mxfp8", "mxfp4", "nvfp4")
        rule = {"weight_qtype": kind, "act_qtype": pick(rng, kind, None, "int8", "e4m3"), "tile_size": BLOCK[kind],
                "bwd_qtype": pick(rng, "e5m2", "e4m3", None)}
        last = BLOCK[kind] * pick(rng, 1, 2, 3)
    elif flavour == "micro_dot":
        kind = pick(rng, "mxfp8", "mxfp4", "nvfp4")
        rule = {"weight_qtype": kind, "act_qtype": kind, "tile_size": BLOCK[kind], "bwd_qtype": "e5m2"}
        extra = {"dlhs_tile_size": BLOCK[kind], "drhs_tile_size": BLOCK[kind],
                 "dlhs_grad_qtype": kind, "drhs_grad_qtype": kind,
                 "dlhs_residual_qtype": kind, "drhs_residual_qtype": kind}
        if rng.random() < 0.5:
            rule["bwd_qtype"] = kind
        last = BLOCK[kind] * pick(rng, 1, 2)
    elif flavour == "no_clipping":
        rule["weight_calibration_method"] = pick(rng, "fixed,-1,1", "absmax,0.5", "rms,1")
        rule["act_calibration_method"] = pick(rng, "fixed,-1,1", "absmax,0.5", "rms,1")
        extra = {"disable_gradient_clipping": pick(rng, True, False)}
    elif flavour == "asymmetric":
        rule = {"weight_qtype": pick(rng, "int8", "e4m3"), "act_qtype": "int8", "bwd_qtype": pick(rng, None, None, "e5m2"),
                "act_calibration_method": calibration_of(rng, True, 0.0)}
        if rng.random() < 0.3 and rule["weight_qtype"] == "int8":
            rule["weight_calibration_method"] = calibration_of(rng, True, 0.0)
    elif flavour == "override":
        extra = {pick(rng, "lhs_qtype", "rhs_qtype"): pick(rng, "e5m2", "int8"),
                 "dlhs_grad_qtype": pick(rng, "e4m3", "int8", None),
                 "drhs_grad_calibration_method": calibration_of(rng),
                 "lhs_disable_channelwise_axes": pick(rng, True, False)}
    elif flavour == "stochastic":
        # Without effect on float8 gradients: no noise is drawn.
        rule["bwd_stochastic_rounding"] = pick(rng, "uniform", "low_bit_uniform")
    elif flavour == "large":
        last = pick(rng, 129, 256, 300, 700)
        rule["weight_calibration_method"] = calibration_of(rng, mostly_absmax=0.7)
    elif flavour == "no_rule":
        return None, None
    rule = {k: v for k, v in rule.items() if v is not None and v is not False}
    if extra:
        rule["additional_qt_config"] = extra
    return rule, last


def dtypes_of(rng):
    return pick(rng, (FLOAT, FLOAT), (FLOAT, FLOAT), (FLOAT, FLOAT), (BRAIN, BRAIN), (BRAIN, BRAIN), (BRAIN, FLOAT))


def cotangent(special=()):
    return lambda out: numbers(out.shape, out.dtype, special)


def finished(case, tensors, attempt):
    """Runs `attempt`; a refusal of Qwix becomes part of the case, a failure of XLA ends the case."""
    try:
        tensors.update(attempt())
    except QWIX_ERRORS as error:
        case["raises"] = {"type": type(error).__name__, "message": str(error)[:300]}
    except jax.errors.JaxRuntimeError:
        return None
    return case, tensors


def make_dot(rng, number):
    flavour = FLAVOURS[number % len(FLAVOURS)]
    rule, last = dot_rule(rng, flavour)
    letters, size, dims = dot_shape(rng, last)
    if flavour in ("bwd_tile", "tile_and_more", "original_residuals", "micro_dot"):
        block = 32 if flavour == "micro_dot" else 8
        for name in letters[2]:
            if name not in letters[0] or name not in letters[1]:
                size[name] = block * pick(rng, 1, 1, 2) if flavour == "micro_dot" else pick(rng, 4, 8, 16)
    if rule and rule.get("bwd_weight_grad_tile_size") == 128:
        for name in letters[2]:
            if name not in letters[1]:
                size[name] = 256 if name == [c for c in letters[0] if c in letters[2]][-1] else 1
    if flavour == "large":
        for name in letters[2]:
            if name not in letters[0] or name not in letters[1]:
                size[name] = pick(rng, 1, 5, 17, 33)
    if flavour == "sparse" and rng.random() < 0.8:
        size[letters[1][-1]] = rule["additional_qt_config"]["sparsity_rule"][1] * pick(rng, 1, 2, 4)
    shapes = [[size[c] for c in letters[0]], [size[c] for c in letters[1]]]
    weight = pick(rng, 1, 1, 1, 0, None)
    if weight is not None and shapes[0] == shapes[1]:
        weight = None  # Qwix would take the activation for the weight, by its shape
    if flavour == "no_rule":
        weight = 1
    dtypes = dtypes_of(rng)
    special = special_of(rng)
    operands = [numbers(s, d, special if rng.random() < 0.7 else ()) for s, d in zip(shapes, dtypes)]
    case = {"op": "dot_general", "rule": rule, "rule_name": flavour, "letters": letters, "dimension_numbers": dims,
            "weight_operand": {1: "rhs", 0: "lhs", None: None}[weight], "special": special,
            "dtypes": [d.name for d in dtypes]}
    tensors = {"lhs": operands[0], "rhs": operands[1]}

    def attempt():
        run_under_rule(lambda a, b: jax.lax.dot_general(a, b, dims_tuple(dims)), operands, weight, rule,
                       cotangent(special_of(rng, 0.1)), tensors)
        found = RECORDER.tensors()
        case["config"] = Provider.config
        sparse = ((rule or {}).get("additional_qt_config") or {}).get("sparsity_rule")
        if sparse and Provider.config:
            found["rhs_sparse"] = qarray.sparsify(operands[1], sparsity.SparsityRule(
                weight_sparsity_n=sparse[0], weight_sparsity_m=sparse[1]))
        return found

    return finished(case, tensors, attempt)


def make_static(rng, number):
    """act_static_scale: the first call of a model whose statistics are empty."""
    rule = {"weight_qtype": "e4m3", "act_qtype": pick(rng, "e4m3", "int8"), "bwd_qtype": pick(rng, "e5m2", None),
            "act_static_scale": True, "act_calibration_method": calibration_of(rng)}
    rule = {k: v for k, v in rule.items() if v is not None}
    if rng.random() < 0.5:
        rule["act_batch_axes"] = pick(rng, [0], [0, 1], [1])
    if rng.random() < 0.3:
        rule["disable_channelwise_axes"] = True
    b, s, d, f = (pick(rng, 2, 3, 4), pick(rng, 3, 5), pick(rng, 8, 16), pick(rng, 6, 10))
    dims = [[[2], [0]], [[], []]]
    dtype = pick(rng, FLOAT, FLOAT, BRAIN)
    operands = [numbers((b, s, d), dtype), numbers((d, f), dtype)]
    case = {"op": "dot_general", "rule": rule, "rule_name": "static", "letters": ["bsd", "df", "bsf"],
            "dimension_numbers": dims, "weight_operand": "rhs", "special": [], "dtypes": [dtype.name] * 2}
    tensors = {"lhs": operands[0], "rhs": operands[1]}

    def attempt():
        run_under_rule(lambda a, c: jax.lax.dot_general(a, c, dims_tuple(dims)), operands, 1, rule, cotangent(),
                       tensors, mutable=True)
        case["config"] = Provider.config
        return RECORDER.tensors()

    return finished(case, tensors, attempt)


def random_tiles(rng, shape, axes):
    """{axis: elements} for some of the axes."""
    tiles = {}
    for axis in axes:
        divisors = [d for d in range(1, shape[axis] + 1) if shape[axis] % d == 0]
        if rng.random() < 0.6:
            tiles[axis] = pick(rng, *divisors)
    return tiles


def make_qarray(rng, number):
    """Qwix's dot_general called with arrays that are already quantized."""
    large = rng.random() < 0.4
    letters, size, dims = dot_shape(rng, pick(rng, 256, 384) if large else pick(rng, 8, 16, 32))
    shapes = [[size[c] for c in letters[0]], [size[c] for c in letters[1]]]
    dtypes = dtypes_of(rng)
    which = pick(rng, (1, 1), (1, 1), (1, 1), (1, 0), (0, 1))
    asymmetric = pick(rng, None, None, 0, 1)
    special = special_of(rng)
    shared = {}  # tile of a contracting axis, the same on both sides
    operands, tensors, hows = [], {}, []
    for side in (0, 1):
        name = ("lhs", "rhs")[side]
        x = numbers(shapes[side], dtypes[side], special)
        if not which[side]:
            operands.append(x)
            tensors[name] = x
            hows.append(None)
            continue
        contracting = dims[0][side]
        tiles = {}
        for place, axis in enumerate(contracting):
            if place not in shared:
                dim = shapes[side][axis]
                choices = [t for t in (1, 2, 4, 8, 32, 128) if dim % t == 0 and t < dim]
                shared[place] = pick(rng, None, *(choices[-1:] if large else choices)) if choices else None
            if shared[place] and rng.random() < 0.7:
                tiles[axis] = shared[place]
        free = [a for a in range(len(shapes[side])) if a not in contracting]
        if rng.random() < 0.2:
            tiles |= random_tiles(rng, shapes[side], free)
        channels = [a for a in free if a not in tiles and rng.random() < 0.8]
        qtype = "int8" if asymmetric == side else pick(rng, "e4m3", "e5m2", "int8", "e4m3", "e2m1", "int4")
        method = pick(rng, "minmax", "minmax,0.9", "fixed,-1,3") if asymmetric == side else calibration_of(rng)
        how = {"qtype": qtype, "calibration": method, "channelwise_axes": channels,
               "tiled_axes": {str(a): t for a, t in tiles.items()}}
        quantized = qarray.quantize(x, qarray.HowToQuantize(
            qtype=QTYPES[qtype], channelwise_axes=channels, tiled_axes=tiles, calibration_method=method))
        operands.append(quantized)
        tensors |= parts(name, quantized)
        hows.append(how)
    case = {"op": "dot_general", "direct": True, "rule": None, "rule_name": "qarray", "letters": letters,
            "dimension_numbers": dims, "weight_operand": None, "special": special, "lhs_how": hows[0],
            "rhs_how": hows[1], "dtypes": [d.name for d in dtypes]}
    return finished(case, tensors,
                    lambda: {"out": dot_general.dot_general(*operands, dims_tuple(dims))})


# ---- quantize ----

def make_quantize(rng, number):
    dtype = pick(rng, FLOAT, BRAIN)
    tensors, combos = {}, {}
    for index in range(6):
        rank = int(rng.integers(1, 6))
        qtype = pick(rng, *QTYPES)
        limit = {1: 200, 2: 20, 3: 8, 4: 5, 5: 4}[rank]
        shape = [int(rng.integers(1, limit + 1)) for _ in range(rank)]
        channels, tiles = [], {}
        block = BLOCK.get(qtype)
        tiled_axis = int(rng.integers(rank)) if block or rng.random() < 0.6 else None
        if tiled_axis is not None:
            tile = block or pick(rng, 1, 2, 3, 4, 8, 16, 32, 0.5, 0.25, 1.0, 1 / 3)
            count = pick(rng, 1, 2, 3)
            if isinstance(tile, float):
                shape[tiled_axis] = 12 * count
            else:
                shape[tiled_axis] = tile * count
            tiles[tiled_axis] = tile
            if not block and rank > 1 and rng.random() < 0.25:
                other = (tiled_axis + 1) % rank
                shape[other] = 2 * pick(rng, 1, 2, 3)
                tiles[other] = 2
        channels = [a for a in range(rank) if a not in tiles and rng.random() < 0.5]
        asymmetric = qtype in ("int8", "int4")
        method = calibration_of(rng, asymmetric or rng.random() < 0.05, 0.4)
        special = special_of(rng, 0.5)
        x = numbers(shape, dtype, special + (["huge"] if rng.random() < 0.05 else []))
        how = qarray.HowToQuantize(qtype=QTYPES[qtype], channelwise_axes=channels, tiled_axes=tiles,
                                   calibration_method=method)
        name, source = f"c{index:02d}", f"x{index:02d}"
        combo = {"x": source, "qtype": qtype, "calibration": method, "channelwise_axes": channels,
                 "tiled_axes": {str(a): t for a, t in tiles.items()}, "special": special}
        tensors[source] = x
        scale_dtype = pick(rng, None, None, None, None, FLOAT, BRAIN)
        try:
            if scale_dtype is not None:
                combo["scale_dtype"] = scale_dtype.name
            result = qarray.quantize_api(x, QTYPES[qtype], channelwise_axes=channels, tiled_axes=tiles,
                                         calibration_method=method, scale_dtype=scale_dtype)
            tensors[f"{name}.q"], tensors[f"{name}.scale"] = result.qvalue, result.scale
            if result.zero_point is not None:
                tensors[f"{name}.zp"] = result.zero_point
            tensors[f"{name}.deq"] = qarray.dequantize(result)
        except QWIX_ERRORS as error:
            combo["raises"] = {"type": type(error).__name__, "message": str(error)[:300]}
        combos[name] = combo
    return {"op": "quantize", "combos": combos, "dtype": dtype.name}, tensors


# ---- casts ----

def make_casts(rng, number):
    """Number 0, 1: every bfloat16. Others: float32 of random bits, and around the ties of each type."""
    tensors = {}
    if number < 2:
        name = ("e4m3fn", "e5m2")[number]
        x = jnp.asarray(np.arange(65536, dtype=np.uint16).view(BRAIN))
        names = [name]
    else:
        rng = VALUES[0]
        bits = rng.integers(0, 2 ** 32, 600, dtype=np.uint32).view(np.float32)
        around = []
        for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn):
            codes = np.arange(2 ** (4 if dtype is ml_dtypes.float4_e2m1fn else 8), dtype=np.uint8).view(dtype)
            values = np.unique(codes.astype(np.float32)[np.isfinite(codes.astype(np.float32))])
            ties = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
            around += [np.nextafter(ties, np.float32(np.inf)), ties, np.nextafter(ties, np.float32(-np.inf))]
        around.append((np.rint(rng.normal(0, 80, 200)) + 0.5).astype(np.float32))
        pool = np.concatenate(around)
        x = jnp.asarray(np.concatenate([bits, pool[rng.integers(0, pool.size, 600)]]))
        names = ["e4m3fn", "e5m2", "int8", "int4", "e2m1fn"]
    tensors["in"] = x
    for name in names:
        qtype = {"e4m3fn": jnp.float8_e4m3fn, "e5m2": jnp.float8_e5m2, "int8": jnp.int8, "int4": jnp.int4,
                 "e2m1fn": jnp.float4_e2m1fn}[name]
        if name == "e2m1fn":
            tensors["in_fp4"] = x
        tensors[f"{name}_qwix"] = numerics.convert_to(x, qtype)
        if name not in ("int8", "int4"):
            tensors[f"{name}_xla"] = x.astype(qtype)
    return {"op": "convert"}, tensors


# ---- grouped matmuls ----

def group_sizes_of(rng, groups, m, exact):
    cuts = np.sort(rng.integers(0, m + 1, groups - 1)) if groups > 1 else np.zeros(0, int)
    sizes = np.diff(np.concatenate([[0], cuts, [m]])).astype(np.int32)
    if not exact:
        shorten = int(rng.integers(groups))
        sizes[shorten] //= 2
    if rng.random() < 0.3:
        sizes[int(rng.integers(groups))] = 0
    if rng.random() < 0.05:
        sizes[:] = 0
    return sizes


def grouped_rule(rng):
    rule = {"weight_qtype": "e4m3", "act_qtype": "e4m3", "bwd_qtype": "e5m2"}
    kind = pick(rng, "plain", "plain", "calibration", "pertensor", "fwd_only", "mixed", "no_rule", "weight_only",
                "no_weight_qtype", "tile")
    if kind == "calibration":
        for side in ("weight", "act", "bwd"):
            rule[f"{side}_calibration_method"] = calibration_of(rng, mostly_absmax=0.2)
    elif kind == "pertensor":
        rule["disable_channelwise_axes"] = True
        rule["act_calibration_method"] = calibration_of(rng)
    elif kind == "fwd_only":
        del rule["bwd_qtype"]
    elif kind == "mixed":
        rule = {"weight_qtype": pick(rng, "int8", "e5m2", "e4m3"), "act_qtype": pick(rng, "int8", "e5m2", "e4m3"),
                "bwd_qtype": pick(rng, "int8", "e5m2", "e4m3")}
    elif kind == "no_rule":
        return kind, None
    elif kind == "weight_only":
        del rule["act_qtype"]
        if rng.random() < 0.5:
            del rule["bwd_qtype"]
    elif kind == "no_weight_qtype":
        del rule["weight_qtype"]
    elif kind == "tile":
        rule["tile_size"] = 8
        rule["bwd_weight_grad_tile_size"] = 4
    return kind, rule


def make_ragged(rng, number):
    kind, rule = grouped_rule(rng)
    m, k, n, groups = pick(rng, 8, 12, 24, 32), pick(rng, 8, 16, 40), pick(rng, 6, 16, 24), pick(rng, 1, 2, 4, 5)
    dtype = pick(rng, FLOAT, FLOAT, BRAIN)
    special = special_of(rng, 0.15)
    sizes = group_sizes_of(rng, groups, m, rng.random() < 0.6)
    operands = [numbers((m, k), dtype, special), numbers((groups, k, n), dtype)]
    case = {"op": "ragged_dot", "rule": rule, "rule_name": kind, "transpose_rhs": False, "special": special,
            "valid_rows": int(sizes.sum()), "dtypes": [dtype.name] * 2}
    tensors = {"lhs": operands[0], "rhs": operands[1], "group_sizes": sizes}

    def attempt():
        run_under_rule(lambda a, b: jax.lax.ragged_dot(a, b, jnp.asarray(sizes)), operands, 1, rule, cotangent(),
                       tensors)
        return RECORDER.tensors()

    return finished(case, tensors, attempt)


class Stub(types.ModuleType):
    """A module that MaxText imports and megablox does not use."""

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
             "transformers", "tensorboardX", "cloud_tpu_diagnostics", "ml_goodput_measurement",
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


MEGABLOX = []


def megablox(maxtext):
    if not MEGABLOX:
        sys.path.insert(0, maxtext)
        sys.meta_path.append(Stubs())
        from maxtext.kernels.megablox import ops
        MEGABLOX.append(ops)
    return MEGABLOX[0]


def make_gmm(rng, number, maxtext):
    ops = megablox(maxtext)
    kind, rule = grouped_rule(rng)
    if kind in ("no_weight_qtype", "tile"):
        kind, rule = "plain", {"weight_qtype": "e4m3", "act_qtype": "e4m3", "bwd_qtype": "e5m2"}
    transposed = bool(rng.random() < 0.5)
    m, groups = pick(rng, 16, 32), pick(rng, 1, 2, 4, 5)
    k, n = pick(rng, 16, 24), pick(rng, 16, 24)
    if rng.random() < 0.3:  # several tiles of k
        k = 2 * k
        tiles = [8, k // 2, n, 8, n, k, 8, k, n]
    else:
        tiles = [8, k, n, 8, n, k, 8, k, n]
    dtype = pick(rng, FLOAT, FLOAT, BRAIN)
    special = special_of(rng, 0.1)
    sizes = group_sizes_of(rng, groups, m, rng.random() < 0.6)
    operands = [numbers((m, k), dtype, special),
                numbers((groups, n, k) if transposed else (groups, k, n), dtype)]
    case = {"op": "gmm", "rule": rule, "rule_name": kind, "transpose_rhs": transposed, "special": special,
            "valid_rows": int(sizes.sum()), "tiling": tiles, "preferred_element_type": dtype.name,
            "dtypes": [dtype.name] * 2}
    tensors = {"lhs": operands[0], "rhs": operands[1], "group_sizes": sizes}

    def attempt():
        ready = qwix.QtProvider([real_rule(rule)])._rules[0] if rule is not None else None
        RECORDER.forget()
        out, pull = jax.vjp(lambda a, b: ops.gmm(
            a, b, jnp.asarray(sizes), dtype, tuple(tiles), transpose_rhs=transposed, interpret=True,
            use_qwix_quantization=ready is not None, qwix_rule=ready), *operands)
        tensors["out"], tensors["g"] = out, numbers(out.shape, out.dtype)
        tensors["dlhs"], tensors["drhs"] = pull(tensors["g"])
        return RECORDER.tensors()

    return finished(case, tensors, attempt)


# ---- einsum and convolution ----

EQUATIONS = [
    ("bsd,edf->bsef", 1), ("bsd,df->bsf", 1), ("df,bsd->bsf", 0), ("bsd,dhk->bshk", 1), ("bshk,hkd->bsd", 1),
    ("dhk,bsd->bhsk", 0), ("ij,jk->ik", 1), ("ij,jk->ki", 1), ("ji,jk->ik", 1), ("jk,ij->ik", 0), ("bthd,bshd->bhts", None),
    ("bhts,bshd->bthd", None), ("ecd,edf->ecf", 1), ("ecd,edf->cef", 1), ("bsd,vd->bsv", 1), ("abc,cab->b", 1),
    ("abcd,dcef->abef", 1), ("i,i->", None), ("i,j->ij", 1), ("becd,edf->befc", 1),
    ("bskgd,btkd->bkgst", None), ("ab,ab->ab", None), ("abc,cd->dab", 1), ("cd,abc->abd", 0), ("gsm,gsec->egcm", None),
    ("egcm,emh->egch", 1), ("xyz,zyw->wx", 1),
]


def make_einsum(rng, number):
    equation, weight = EQUATIONS[number % len(EQUATIONS)]
    inputs = equation.split("->")[0].split(",")
    names = sorted(set("".join(inputs)))
    # Sizes differ, so that an operand is known by its shape.
    size = dict(zip(names, (int(n) for n in rng.choice([2, 3, 4, 5, 6, 7, 8], len(names), replace=False))))
    rule, last = dot_rule(rng, pick(rng, "plain", "plain", "calibration", "integer", "fwd_only", "weight_only_bwd",
                                    "pertensor", "no_rule", "tile_fraction", "sparse"))
    if rule and "tile_size" in rule:
        rule["tile_size"] = pick(rng, 1.0, 0.5, 2)
        size = {name: 2 * value for name, value in size.items()}
    shapes = [[size[c] for c in names] for names in inputs]
    if shapes[0] == shapes[1]:
        weight = None
    dtypes = dtypes_of(rng)
    operands = [numbers(s, d) for s, d in zip(shapes, dtypes)]
    case = {"op": "einsum", "einsum": equation, "rule": rule, "rule_name": "einsum",
            "weight_operand": {1: "rhs", 0: "lhs", None: None}[weight], "dtypes": [d.name for d in dtypes],
            "special": []}
    tensors = {"x": operands[0], "w": operands[1]}
    seen = []

    def attempt():
        original = Provider._create_dot_general_qt_config

        def watch(self, rule_, op_id, lhs, rhs):
            seen.append((lhs, rhs))
            return original(self, rule_, op_id, lhs, rhs)

        Provider._create_dot_general_qt_config = watch
        try:
            run_under_rule(lambda a, b: jnp.einsum(equation, a, b), operands, weight, rule, cotangent(), tensors)
        finally:
            Provider._create_dot_general_qt_config = original
        case["config"] = Provider.config
        if not seen:
            return {}
        if shapes[0] == shapes[1]:
            case["operands_unknown"] = True
            return {}
        # jnp.einsum may swap the operands; lhs and rhs of the settings and of dot_g_dlhs_* are those of the dot.
        order = ["w", "x"] if list(seen[0][0].shape) == shapes[1] else ["x", "w"]
        case["dot_operand_order"] = order
        found = {}
        for name, tensor in RECORDER.tensors().items():
            head, _, rest = name.partition("_")
            found[f"{order[head == 'rhs']}_{rest}" if head in ("lhs", "rhs") else f"dot_{name}"] = tensor
        sparse = (rule.get("additional_qt_config") or {}).get("sparsity_rule")
        if sparse:
            found["dot_rhs_sparse"] = qarray.sparsify(operands["xw".index(order[1])], sparsity.SparsityRule(
                weight_sparsity_n=sparse[0], weight_sparsity_m=sparse[1]))
        return found

    return finished(case, tensors, attempt)


def make_conv(rng, number):
    spatial = pick(rng, 1, 2, 2, 3)
    groups = pick(rng, 1, 1, 1, 2, 3)
    b, c, o = pick(rng, 1, 2, 3), groups * pick(rng, 1, 2, 4), groups * pick(rng, 1, 2, 3)
    low = 3 if spatial == 3 else 5
    image = [int(rng.integers(low, 6 if spatial == 3 else 10)) for _ in range(spatial)]
    window = [int(rng.integers(1, 4)) for _ in range(spatial)]
    strides = [pick(rng, 1, 1, 2, 3) for _ in range(spatial)]
    lhs_dilation = [pick(rng, 1, 1, 1, 2) for _ in range(spatial)]
    rhs_dilation = [pick(rng, 1, 1, 1, 2) for _ in range(spatial)]
    padding = pick(rng, "SAME", "VALID", [[int(rng.integers(0, 3)), int(rng.integers(0, 3))] for _ in range(spatial)])
    if isinstance(padding, str):
        lhs_dilation = [1] * spatial
    letters = "DHW"[3 - spatial:]
    layout = [f"N{letters}C", f"{letters}IO", f"N{letters}C"]
    rule, _ = dot_rule(rng, pick(rng, "plain", "plain", "calibration", "pertensor", "weight_only", "no_rule",
                                 "tile_small"))
    if rule and rng.random() < 0.2:  # XLA takes one type only
        rule["weight_qtype"] = rule["act_qtype"] = pick(rng, "int8", "e5m2", "e4m3")
    dtypes = [pick(rng, FLOAT, FLOAT, BRAIN)] * 2
    operands = [numbers([b, *image, c], dtypes[0]), numbers([*window, c // groups, o], dtypes[1])]
    if operands[0].shape == operands[1].shape:
        return None
    pads = jax.lax.padtype_to_pads(
        image, [(w - 1) * d + 1 for w, d in zip(window, rhs_dilation)], strides, padding) \
        if isinstance(padding, str) else padding
    case = {"op": "conv_general_dilated", "layout": layout, "strides": strides, "padding": padding,
            "pads": [[int(v) for v in p] for p in pads], "lhs_dilation": lhs_dilation, "rhs_dilation": rhs_dilation,
            "feature_group_count": groups, "rule": rule, "rule_name": "conv", "dtypes": [d.name for d in dtypes],
            "special": []}
    tensors = {"x": operands[0], "w": operands[1]}

    def attempt():
        run_under_rule(lambda x, w: jax.lax.conv_general_dilated(
            x, w, strides, padding if isinstance(padding, str) else [tuple(p) for p in padding],
            lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation, dimension_numbers=tuple(layout),
            feature_group_count=groups), operands, 1, rule, None, tensors)
        return {{"l": "x", "r": "w"}[name[0]] + name[3:]: tensor for name, tensor in RECORDER.tensors().items()}

    return finished(case, tensors, attempt)


KINDS = {"casts": make_casts, "quantize": make_quantize, "dot": make_dot, "static": make_static, "qarray": make_qarray,
         "ragged": make_ragged, "gmm": make_gmm, "einsum": make_einsum, "conv": make_conv}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--variants", type=int, default=1)
    parser.add_argument("--maxtext", default="")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for kind in arguments.kinds.split(","):
        if kind == "gmm" and not arguments.maxtext:
            print("not made: gmm (--maxtext is not given)")
            continue
        made = dropped = 0
        for number in range(arguments.first, arguments.first + arguments.count):
            root = [arguments.seed, zlib.crc32(kind.encode())]
            shape_number = number // arguments.variants
            rng, VALUES[0] = np.random.default_rng(root + [shape_number]), np.random.default_rng(root + [number, 1])
            more = (arguments.maxtext,) if kind == "gmm" else ()
            result = KINDS[kind](rng, shape_number, *more)
            if result is None:
                dropped += 1
                continue
            case, tensors = result
            name = f"{kind}_{arguments.seed}_{number:04d}"
            case |= {"name": name, "seed": [arguments.seed, number, arguments.variants], "split": "made"}
            write_file(arguments.out / f"{name}.safetensors", tensors, case)
            made += 1
            if made % (20 * arguments.variants) == 0:
                jax.clear_caches()
        print(f"{kind}: {made} files, {dropped} dropped (XLA's CPU backend cannot run them)", flush=True)


if __name__ == "__main__":
    main()
