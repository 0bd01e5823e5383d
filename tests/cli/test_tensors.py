#!/usr/bin/env python3
"""octet quantize, dequantize, dot, gmm and bench from outside.

What could break: codes of another array or axis, a scale that is lost on its way through a file, a daemon's
answer that differs from the local one, an error in terms that nobody typed, a file that is half written.
The numbers themselves are compared with Qwix's in tests/golden.

usage: test_tensors.py OCTET [OCTETD]
"""
import contextlib
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree

import arrays
import support
from arrays import bf16, f32, floats, i32
from support import folder, run

E4M3 = ["--weight-qtype", "float8_e4m3fn", "--act-qtype", "float8_e4m3fn"]


class Case(unittest.TestCase):
    def setUp(self):
        context = folder()
        self.path = pathlib.Path(context.__enter__())
        self.addCleanup(context.__exit__, None, None, None)
        self.out = str(self.path / "out.safetensors")

    def file(self, name="x", **content):
        return arrays.write(self.path / f"{name}.safetensors", content)

    def fine(self, *arguments, **kwargs):
        done = run(*arguments, **kwargs)
        self.assertEqual((done.rc, done.err), (0, ""), arguments)
        return done

    def refused(self, arguments, *words, **kwargs):
        done = run(*arguments, **kwargs)
        self.assertEqual((done.rc, done.out), (2, ""), f"{arguments}: {done.err}")
        self.assertEqual(done.err.count("\n"), 1, done.err)
        for word in words:
            self.assertIn(word, done.err)

    def quantized(self, *arguments):
        self.fine("quantize", *arguments, "-o", self.out)
        return arrays.read(self.out)[0]


class Quantize(Case):
    TOP = f32(256, 288, 320, 352, 384, 416, 448, 0)

    def test_codes_and_scale_are_in_the_file(self):
        x = self.file(w=("F32", [2, 4], self.TOP))
        got = self.quantized(x, "--qtype", "float8_e4m3fn")
        self.assertEqual(got, {"w": ("F8_E4M3", [2, 4], bytes.fromhex("78797a7b7c7d7e00")),
                               "w.scale": ("F32", [1, 1], f32(1))})
        self.assertEqual(sorted(os.listdir(self.path)), ["out.safetensors", "x.safetensors"])

    def test_axes_and_tiles_have_their_scales(self):
        x = self.file(w=("F32", [2, 4], f32(448, 0, 0, 224, 896, 1, 2, 112)))
        rows = self.quantized(x, "--qtype", "float8_e4m3fn", "--axes", "0")
        self.assertEqual(rows["w.scale"], ("F32", [2, 1], f32(1, 2)))
        for tile in ("1=2", "-1=2", "1=1/2"):
            tiles = self.quantized(x, "--qtype", "float8_e4m3fn", "--axes=-2", "--tiles", tile)
            self.assertEqual(tiles["w.scale"], ("F32", [2, 2], f32(1, 0.5, 2, 0.25)))
        for tiles in (["--tiles", "0=1,1=2"], ["--tiles", "0=1", "--tiles", "1=2"]):
            tiled = self.quantized(x, "--qtype", "float8_e4m3fn", *tiles)
            self.assertEqual(tiled["w.scale"], ("F32", [2, 2], f32(1, 0.5, 2, 0.25)))
        both = self.quantized(x, "--qtype", "float8_e4m3fn", "--axes", "0,1")
        self.assertEqual(both["w.scale"][1], [2, 4])
        self.assertEqual(floats(both["w.scale"][2])[1], 1.0, "the scale of zeros is 1")

    def test_types(self):
        x = self.file(w=("BF16", [1, 32], bf16(*range(-16, 16))))
        for qtype, dtype, size in (("float8_e5m2", "F8_E5M2", 32), ("int8", "I8", 32), ("int4", "I8", 32),
                                   ("float4_e2m1fn", "F4", 16)):
            got = self.quantized(x, "--qtype", qtype)
            self.assertEqual((got["w"][0], len(got["w"][2]), got["w.scale"][0]), (dtype, size, "BF16"), qtype)
        for name in ("float32", "f32"):
            got = self.quantized(x, "--qtype", "int8", "--scale-dtype", name)
            self.assertEqual(got["w.scale"][0], "F32")
        for qtype, tile in (("mxfp8", "32"), ("mxfp4", "32"), ("nvfp4", "16")):
            got = self.quantized(x, "--qtype", qtype, "--tiles", f"1={tile}")
            self.assertEqual(got["w.scale"][1], [1, 32 // int(tile)])

    def test_int4_comes_back_as_int4(self):
        x = self.file(w=("F32", [1, 4], f32(-8, -1, 0, 7)))
        self.fine("quantize", x, "--qtype", "int4", "--method", "fixed,-7.5,7.5", "-o", self.out)
        got, metadata = arrays.read(self.out)
        self.assertEqual(got["w"], ("I8", [1, 4], bytes([0xf8, 0xff, 0, 7])))
        self.assertEqual(metadata, {"octet.dtype.w": "int4"})
        back = str(self.path / "back.safetensors")
        self.assertIn("w: int4, scale float32 [1, 1]", self.fine("dequantize", self.out, "-o", back).out)
        self.assertEqual(floats(arrays.read(back)[0]["w"][2]), [-8, -1, 0, 7])

    def test_a_zero_point_stands_beside(self):
        x = self.file(w=("F32", [1, 4], f32(0, 1, 2, 255)))
        got = self.quantized(x, "--qtype", "int8", "--method", "minmax")
        self.assertEqual(got["w.zero_point"][:2], ("I8", [1, 1]))
        done = self.fine("quantize", x, "--qtype", "int8", "--method", "minmax")
        self.assertIn("with a zero point", done.out)
        back = str(self.path / "back.safetensors")
        self.fine("dequantize", self.out, "-o", back)
        for a, b in zip(floats(arrays.read(back)[0]["w"][2]), (0, 1, 2, 255)):
            self.assertAlmostEqual(a, b, delta=0.51)

    def test_figures(self):
        x = self.file(w=("F32", [8], f32(100, -300, 448, 0, 1e-6, 2, float("nan"), float("inf"))))
        done = self.fine("quantize", x, "--qtype", "float8_e4m3fn", "--method", "fixed,-224,224", "--json")
        got = json.loads(done.out)
        self.assertEqual((got["name"], got["shape"], got["scale_shape"]), ("w", [8], [1]))
        self.assertEqual((got["amax"], got["scale_min"], got["scale_max"]), (448, 0.5, 0.5))
        self.assertEqual((got["saturated"], got["underflowed"], got["nonfinite"], got["elements"]), (2, 1, 2, 8))
        self.assertEqual((got["bytes_before"], got["bytes_after"]), (32, 12))
        self.assertEqual((got["error_max"], got["destroyed"]), (224, 0))
        table = self.fine("quantize", x, "--qtype", "float8_e4m3fn", "--method", "fixed,-224,224").out
        self.assertTrue(table.startswith("w: float32 [8] -> float8_e4m3fn, scale float32 [1]\n"), table)
        for row in (r"FIGURE +VALUE +NOTE", r"largest error +224 +50 % of amax", r"saturated +2 +25\.0 % of the elements", r"underflowed +1 ", r"NaN or Inf +2 ", r"SQNR +\d+\.\d\d dB"):
            self.assertRegex(table, row)
        for line in table.splitlines():
            self.assertEqual(line, line.rstrip())

    def test_what_became_nan_is_told(self):
        x = self.file(w=("F32", [2, 2], f32(1, 2, 3, float("inf"))))
        done = run("quantize", x, "--qtype", "float8_e4m3fn", "--axes", "0")
        self.assertEqual((done.rc, done.err), (0, f"octet: warning: FILE '{x}': 1 of 2 scales are no finite number "
                                                  "above 0; the first, at index 1, is inf\n"))
        self.assertRegex(done.out, r"became NaN +1 +25\.0 % of the elements that were finite\n")
        self.assertNotIn("became NaN", self.fine("quantize", self.file("y", w=("F32", [1], f32(1))), "--qtype", "int8").out)

    def test_nothing_lost_and_nothing_there(self):
        exact = self.file("a", w=("F32", [2], f32(448, -224)))
        self.assertEqual(json.loads(self.fine("quantize", exact, "--qtype", "float8_e4m3fn", "--json").out)["sqnr_db"],
                         "Infinity")
        self.assertIn("no loss", self.fine("quantize", exact, "--qtype", "float8_e4m3fn").out)
        empty = self.file("b", w=("F32", [0, 3], b""))
        got = json.loads(self.fine("quantize", empty, "--qtype", "float8_e4m3fn", "--axes", "1", "--json").out)
        self.assertEqual((got["elements"], got["sqnr_db"]), (0, "NaN"))

    def test_the_only_array_needs_no_name(self):
        x = self.file(w=("F32", [2], f32(1, 2)))
        self.quantized(x, "--qtype", "float8_e4m3fn")
        back = str(self.path / "back.safetensors")
        self.fine("dequantize", self.out, "-o", back)
        self.assertEqual(list(arrays.read(back)[0]), ["w"])
        two = self.file("two", a=("F32", [1], f32(1)), b=("F32", [1], f32(1)))
        self.refused(["quantize", two, "--qtype", "int8"], "holds 2 arrays; name one", f"{two}:a")

    def test_colons_in_paths_and_names(self):
        path = arrays.write(self.path / "a:b.safetensors", {"c:d": ("F32", [1], f32(1)), "e": ("F32", [1], f32(2))})
        self.assertIn("c:d: float32", self.fine("quantize", f"{path}:c:d", "--qtype", "int8").out)
        self.assertIn("e: float32", self.fine("quantize", f"{path}:e", "--qtype", "int8").out)

    def test_dequantize(self):
        q = self.file(w=("F8_E4M3", [2, 2], bytes.fromhex("78383840")), **{"w.scale": ("BF16", [2, 1], bf16(2, 4))})
        self.fine("dequantize", q, "-o", self.out)
        self.assertEqual(arrays.read(self.out)[0]["w"], ("BF16", [2, 2], bf16(512, 2, 4, 8)))
        done = self.fine("dequantize", q, "--dtype", "float32", "-o", self.out, "--json")
        self.assertEqual(json.loads(done.out), {"name": "w", "dtype": "float32", "shape": [2, 2]})
        self.assertEqual(arrays.read(self.out)[0]["w"], ("F32", [2, 2], f32(512, 2, 4, 8)))

    def test_the_scale_may_have_another_name(self):
        codes = ("F8_E4M3", [2, 2], bytes.fromhex("38383838"))
        q = self.file(w=codes, w_scale_inv=("F32", [2, 1], f32(2, 4)), three=("F32", [3, 1], f32(1, 1, 1)))
        other = self.file("other", s=("F32", [1, 2], f32(8, 16)))
        for scale, expected in (("w_scale_inv", f32(2, 2, 4, 4)), (f"{q}:w_scale_inv", f32(2, 2, 4, 4)),
                                (f"{other}:s", f32(8, 16, 8, 16)), (other, f32(8, 16, 8, 16))):
            self.fine("dequantize", f"{q}:w", "--scale", scale, "-o", self.out)
            self.assertEqual(arrays.read(self.out)[0]["w"], ("F32", [2, 2], expected))
        one = self.file("one", x=("F32", [2, 2], f32(1, 0, 0, 1)))
        self.fine("dot", f"{q}:w", one, "--lhs-scale", "w_scale_inv", "-o", self.out)
        self.assertEqual(arrays.read(self.out)[0]["out"][2], f32(2, 2, 4, 4))
        self.fine("dot", one, f"{q}:w", "--rhs-scale", f"{other}:s", "-o", self.out)
        self.assertEqual(arrays.read(self.out)[0]["out"][2], f32(8, 16, 8, 16))
        self.refused(["dequantize", f"{q}:w", "--scale", "three", "-o", self.out],
                     "option --scale 'three': shape [3, 1] does not go with [2, 2] of 'w'", "divides")
        self.refused(["dequantize", f"{q}:w", "--scale", "w_scale", "-o", self.out], "the nearest of 3 is 'w_scale_inv'")
        self.refused(["dequantize", f"{one}", "--scale", f"{other}:s", "-o", self.out], f"FILE '{one}'", "'float32'")

    def test_scales_that_are_none_are_told(self):
        """Computed with all the same: a row that held an Inf has such a scale in Qwix too."""
        q = self.file(w=("I8", [5, 1], bytes([1, 1, 1, 1, 1])),
                      **{"w.scale": ("F32", [5, 1], f32(2, float("nan"), float("inf"), 0, -1))})
        done = run("dequantize", q, "-o", self.out)
        self.assertEqual(done.rc, 0, done.err)
        self.assertEqual(done.err, f"octet: warning: FILE '{q}:w.scale': 4 of 5 scales are no finite number above 0; "
                                   "the first, at index 1, is nan\n")
        self.assertEqual(floats(arrays.read(self.out)[0]["w"][2])[2:], [float("inf"), 0, -1])

    def test_terminals_are_not_steered(self):
        path = arrays.write(self.path / "x", {"\x1b[31mw": ("F32", [1], f32(1))})
        self.assertNotIn("\x1b", self.fine("quantize", path, "--qtype", "int8").out)
        self.assertNotIn("\x1b", self.fine("quantize", path, "--qtype", "int8", "--json").out)
        self.assertNotIn("\x1b", run("quantize", f"{path}:\x1b[32m", "--qtype", "int8").err)


class Dot(Case):
    def setUp(self):
        super().setUp()
        self.x = self.file("x", x=("F32", [2, 3], f32(1, 2, 3, 4, 5, 6)))
        self.w = self.file("w", w=("F32", [3, 2], f32(1, 0, 0, 1, 2, 2)))

    def product(self, *arguments):
        done = self.fine(*arguments, "-o", self.out)
        return arrays.read(self.out)[0], done.out

    def test_without_rules_it_is_a_plain_product(self):
        got, out = self.product("dot", self.x, self.w)
        self.assertEqual(got, {"out": ("F32", [2, 2], f32(7, 8, 16, 17))})
        self.assertNotIn("QWIX", out)
        self.assertRegex(out, r"lhs +float32 +\[2, 3\] +- +6 ")
        self.assertRegex(out, r"digest +[0-9a-f]{32} \(of out\)\n")

    def test_axes_in_every_form(self):
        plain = self.product("dot", self.x, self.w)[0]
        for how in (["--contract", "1,0"], ["--contract=-1,-2"], ["--dims", "(((1,), (0,)), ((), ()))"],
                    ["--dims", "[[[1],[0]],[[],[]]]"]):
            self.assertEqual(self.product("dot", self.x, self.w, *how)[0], plain, how)
        got = self.product("dot", self.x, self.x, "--contract", "0,0", "--contract", "1,1")[0]
        self.assertEqual(got["out"], ("F32", [], f32(91)))
        got = self.product("dot", self.x, self.x, "--batch", "0,0")[0]
        self.assertEqual(got["out"], ("F32", [2], f32(14, 77)))
        got = self.product("dot", self.x, self.x, "--dims", "(((), ()), ((), ()))")[0]
        self.assertEqual(got["out"][1], [2, 3, 2, 3])

    def test_quantized_by_types_or_by_rules(self):
        rules = self.path / "r.yml"
        rules.write_text("rules: [{module_path: 'decoder/.*', weight_qtype: float8_e4m3fn, act_qtype: float8_e4m3fn}]\n")
        short, out = self.product("dot", self.x, self.w, *E4M3, "--module", "decoder/wi")
        self.assertEqual(out.splitlines()[0], "[QWIX] module='decoder/wi' op=dot_general0 rule=0")
        self.assertRegex(out, r"lhs +float32 +\[2, 3\] +float8_e4m3fn +6 +0\.006696 to 0\.01339 +0 +0 +0 ")
        long, _ = self.product("dot", self.x, self.w, "--rules", str(rules), "--module", "decoder/wi")
        self.assertEqual(long, short)
        done = run("dot", self.x, self.w, "--rules", str(rules), "--module", "mtp/wi", "-o", self.out)
        self.assertEqual(done.out.splitlines()[0], "[QWIX] module='mtp/wi' op=dot_general0 rule=None")
        self.assertEqual(done.err, "octet: warning: no rule takes dot_general0 of module 'mtp/wi', so nothing is "
                                   "quantized (--module sets the module that rules see)\n")
        self.assertEqual(arrays.read(self.out)[0]["out"][2], f32(7, 8, 16, 17))

    def test_options_are_a_rule_s_fields(self):
        values = [((i * 37) % 101 - 50) / 7 for i in range(8 * 8)]
        x = self.file("big", x=("F32", [8, 8], f32(*values)), w=("F32", [8, 8], f32(*values[::-1])),
                      g=("F32", [8, 8], f32(*values[::2], *values[1::2])))
        types = {"weight_qtype": "int8", "act_qtype": "int8", "bwd_qtype": "float8_e5m2"}
        for fields, *given in (
                ({"tile_size": 4}, "--tile-size", "4"),
                ({"bwd_weight_grad_tile_size": "1/2"}, "--bwd-tile-size", "1/2"),
                ({"disable_channelwise_axes": True}, "--disable-channelwise-axes"),
                ({"sparsity": {"n": 2, "m": 4}}, "--sparsity", "2:4"),
                ({"weight_calibration_method": "absmax,0.5"}, "--weight-method", "absmax,0.5"),
                ({"act_calibration_method": "fixed,-2,2"}, "--act-method", "fixed,-2,2"),
                ({"bwd_calibration_method": "absmax,0.5"}, "--bwd-method", "absmax,0.5")):
            rules = self.path / "r.yml"
            rules.write_text(json.dumps({"rules": [{**types, **fields}]}))
            command = ["dot", f"{x}:x", f"{x}:w", "--cotangent", f"{x}:g", "-o", self.out]
            plain = self.fine(*command, "--weight-qtype", "int8", "--act-qtype", "int8", "--bwd-qtype", "float8_e5m2")
            plain = arrays.read(self.out)[0]
            self.fine(*command, "--weight-qtype", "int8", "--act-qtype", "int8", "--bwd-qtype", "float8_e5m2", *given)
            short = arrays.read(self.out)[0]
            self.assertNotEqual(short, plain, given)
            self.fine(*command, "--rules", str(rules))
            self.assertEqual(short, arrays.read(self.out)[0], given)

    def test_what_became_nan_is_told(self):
        x = self.file("inf", x=("F32", [2, 3], f32(1, 2, 3, 4, 5, float("inf"))))
        done = run("dot", x, self.w, *E4M3)
        self.assertEqual((done.rc, done.err), (0, f"octet: warning: LHS '{x}': 2 finite elements became NaN or Inf, "
                                                  "since they share a scale with one\n"))
        self.assertRegex(done.out, r" SQNR  BECAME NAN\nlhs .* 2\nrhs .* 0\n")
        quantized = json.loads(run("quantize", x, "--qtype", "float8_e4m3fn", "--axes", "0", "--json").out)
        line = json.loads(run("dot", x, self.w, *E4M3, "--json").out)["trace"]["interceptions"][0]["lhs"]
        for ours, wire in (("amax", "amax"), ("scale_min", "scale_min"), ("scale_max", "scale_max"),
                           ("destroyed", "destroyed"), ("nonfinite", "nonfinite"), ("sqnr_db", "sqnr_db")):
            self.assertAlmostEqual(float(quantized[ours]), float(line[wire]), places=5, msg=ours)

    def test_a_rule_without_effect_is_told(self):
        done = run("dot", self.x, self.w, "--act-qtype", "int8")
        self.assertEqual(done.rc, 0)
        self.assertRegex(done.err, r"^octet: note: the rule has no weight_qtype, so nothing is quantized[^\n]*\n$")

    def test_beside_the_unquantized(self):
        g = self.file("g", g=("F32", [2, 2], f32(1, 0, 0, 1)))
        out = self.fine("dot", self.x, self.w, *E4M3, "--cotangent", g, "--compare-unquantized").out
        for name in ("out", "lhs_grad", "rhs_grad"):
            self.assertRegex(out, rf"\nunquantized {name}: largest difference [\d.]+, [\d.]+ % of the largest element; "
                                  r"SQNR (\d+\.\d\d dB|no loss)\n")
        got = json.loads(self.fine("dot", self.x, self.w, *E4M3, "--compare-unquantized", "--json").out)["unquantized"]
        self.assertEqual(list(got), ["out"])
        quantized = floats(self.product("dot", self.x, self.w, *E4M3)[0]["out"][2])
        self.assertAlmostEqual(got["out"]["absolute_max"], max(abs(a - b) for a, b in zip(quantized, (7, 8, 16, 17))), places=5)
        same = self.fine("dot", self.x, self.w, "--compare-unquantized").out
        self.assertIn("unquantized out: largest difference 0, 0 % of the largest element; SQNR no loss\n", same)

    def test_operands_that_come_quantized(self):
        for name, axis in (("x", "0"), ("w", "1")):
            self.fine("quantize", getattr(self, name), "--qtype", "float8_e4m3fn", "--axes", axis,
                      "-o", str(self.path / f"{name}q"))
        got, out = self.product("dot", str(self.path / "xq"), str(self.path / "wq"))
        self.assertEqual(out.count("float8_e4m3fn given"), 2)
        expected = self.product("dot", self.x, self.w, *E4M3)[0]
        self.assertEqual(got["out"], expected["out"], "the same codes, made in two steps")

    def test_gradients(self):
        g = self.file("g", g=("F32", [2, 2], f32(1, 0, 0, 1)))
        got, out = self.product("dot", self.x, self.w, "--cotangent", g)
        self.assertEqual(got["lhs_grad"], ("F32", [2, 3], f32(1, 0, 2, 0, 1, 2)))
        self.assertEqual(got["rhs_grad"], ("F32", [3, 2], f32(1, 4, 2, 5, 3, 6)))
        self.assertRegex(out, r"cotangent +float32 +\[2, 2\] +- ")
        self.assertNotIn("cotangent:", out)
        _, out = self.product("dot", self.x, self.w, "--cotangent", g, *E4M3, "--bwd-qtype", "float8_e5m2")
        self.assertRegex(out, r"cotangent +float32 +\[2, 2\] +float8_e5m2 ")
        self.assertIn("\ncotangent: after the other operand's scale was moved onto it; ", out)

    def test_reference(self):
        same = self.file("same", r=("F32", [2, 2], f32(7, 8, 16, 17)))
        near = self.file("near", r=("F32", [2, 2], f32(7, 8, 16, 20)))
        half = self.file("half", r=("BF16", [2, 2], bf16(7, 8, 16, 17)))
        self.assertIn("equal bits: 4 of 4", self.fine("dot", self.x, self.w, "--reference", same).out)
        out = self.fine("dot", self.x, self.w, "--reference", near).out
        self.assertIn("largest difference 3, 15 % of the largest element; equal bits: 3 of 4", out)
        self.assertIn("float32 beside bfloat16", self.fine("dot", self.x, self.w, "--reference", half).out)
        got = json.loads(self.fine("dot", self.x, self.w, "--reference", near, "--json").out)
        self.assertEqual(got["reference"], {"absolute_max": 3, "relative": 0.15, "nonfinite": 0, "elements": 4,
                                            "equal_bits": 3})

    def test_json_is_the_answer_without_numbers(self):
        got = json.loads(self.fine("dot", self.x, self.w, *E4M3, "--json").out)
        self.assertEqual((got["out"]["dtype"], got["out"]["shape"], got["out"]["data"]), ("DATA_TYPE_F32", ["2", "2"], ""))
        line = got["trace"]["interceptions"][0]
        self.assertEqual((line["op"], line["rule"], line["lhs"]["is_quantized"]), ("dot_general0", 0, True))
        self.assertNotIn("reference", got)

    def test_other_options(self):
        got, _ = self.product("dot", self.x, self.w, "--out-dtype", "bfloat16")
        self.assertEqual(got["out"], ("BF16", [2, 2], bf16(7, 8, 16, 17)))
        swapped, _ = self.product("dot", self.w, self.x, "--contract", "0,1", *E4M3, "--weight", "lhs")
        self.assertEqual(swapped["out"][1], [2, 2])

    def test_neither_kernels_nor_threads_change_a_bit(self):
        values = [((i * 37) % 101 - 50) / 7 for i in range(40 * 64)]
        x = self.file("big", x=("F32", [40, 64], f32(*values)), w=("F32", [64, 40], f32(*values[::-1])))
        command = ["dot", f"{x}:x", f"{x}:w", *E4M3, "-o", self.out]
        self.fine(*command)
        expected, ran = pathlib.Path(self.out).read_bytes(), 0
        for kernels in ("scalar", "avx2", "avx512", "avx512bf16"):
            done = run(*command, env={"OCTET_CPU": kernels})
            if done.rc:
                print(f"not run: {kernels} ({done.err.strip()})")
                self.assertIn("OCTET_CPU", done.err)
                continue
            self.assertEqual(pathlib.Path(self.out).read_bytes(), expected, kernels)
            ran += 1
        self.assertGreaterEqual(ran, 1)
        for threads in ("1", "2", "5"):
            self.fine(*command, "--threads", threads)
            self.assertEqual(pathlib.Path(self.out).read_bytes(), expected, threads)


class Gmm(Case):
    def setUp(self):
        super().setUp()
        self.x = self.file("x", x=("F32", [3, 2], f32(1, 2, 3, 4, 5, 6)), sizes=("I32", [3], i32(1, 0, 2)))
        self.w = self.file("w", w=("F32", [3, 2, 1], f32(1, 1, 9, 9, 1, 2)), t=("F32", [3, 1, 2], f32(1, 1, 9, 9, 1, 2)))

    def out_of(self, *arguments):
        self.fine("gmm", f"{self.x}:x", *arguments, "-o", self.out)
        return arrays.read(self.out)[0]

    def test_groups(self):
        expected = ("F32", [3, 1], f32(3, 11, 17))
        for sizes in (f"{self.x}:sizes", "1,0,2"):
            self.assertEqual(self.out_of(f"{self.w}:w", sizes)["out"], expected)
        self.assertEqual(self.out_of(f"{self.w}:t", "1,0,2", "--transpose-rhs")["out"], expected)
        self.assertEqual(self.out_of(f"{self.w}:w", "1,0,2", "--op", "ragged_dot")["out"], expected)
        self.assertEqual(self.out_of(f"{self.w}:w", "1,0,0")["out"], ("F32", [3, 1], f32(3, 0, 0)))

    def test_the_line_is_the_op_s(self):
        for op in ("gmm", "ragged_dot"):
            out = self.fine("gmm", f"{self.x}:x", f"{self.w}:w", "1,0,2", "--op", op, *E4M3).out
            self.assertRegex(out.splitlines()[0], rf"^\[QWIX\] module='' op={op}\d* rule=0$")

    def test_gradients_of_an_empty_group_are_zero(self):
        g = self.file("g", g=("F32", [3, 1], f32(1, 1, 1)))
        got = self.out_of(f"{self.w}:w", "1,0,2", "--cotangent", g)
        self.assertEqual(got["rhs_grad"], ("F32", [3, 2, 1], f32(1, 2, 0, 0, 8, 10)))

    def test_sizes_that_do_not_add_up(self):
        self.refused(["gmm", f"{self.x}:x", f"{self.w}:w", "2,0,2"], "GROUP_SIZES '2,0,2'", "4", "3")
        self.refused(["gmm", f"{self.x}:x", f"{self.w}:w", "2,-1,2"], "GROUP_SIZES '2,-1,2': [1]", "-1")
        self.refused(["gmm", f"{self.x}:x", f"{self.w}:w", "3"], "GROUP_SIZES '3'")
        self.refused(["gmm", f"{self.x}:x", f"{self.w}:w", "1,,2"], "GROUP_SIZES", "no whole number")
        self.refused(["gmm", f"{self.x}:x", f"{self.w}:w", "1,0,99999999999"], "GROUP_SIZES", "'99999999999'")
        self.refused(["gmm", f"{self.x}:x", f"{self.w}:w", f"{self.x}:x"], "GROUP_SIZES", "float32")


class WrongUse(Case):
    def test_command_line(self):
        x = self.file(x=("F32", [2, 2], f32(1, 2, 3, 4)))
        for arguments, *words in (
                (["quantize"], "1 operand expected (FILE[:NAME]), not 0"),
                (["quantize", x, x, "--qtype", "int8"], "1 operand expected", "not 2"),
                (["quantize", x], "needs --qtype", "float8_e4m3fn"),
                (["quantize", ""], "operand is empty"),
                (["quantize", x, "--qtype", "int9"], "option --qtype", "'int9'"),
                (["quantize", x, "--qtype", "int8", "--method", "max"], "option --method", "'max'"),
                (["quantize", x, "--qtype", "int8", "--axes", "2"], "option --axes", "'2'", "0 to 1"),
                (["quantize", x, "--qtype", "int8", "--axes", "0,"], "option --axes", "''"),
                (["quantize", x, "--qtype", "int8", "--axes", "0,x"], "option --axes", "'x'"),
                (["quantize", x, "--qtype", "int8", "--axes", "0,-2"], "option --axes", "axis 0", "twice"),
                (["quantize", x, "--qtype", "int8", "--tiles", "1"], "option --tiles", "AXIS=SIZE"),
                (["quantize", x, "--qtype", "int8", "--tiles", "9=1"], "option --tiles", "[2, 2]"),
                (["quantize", x, "--qtype", "int8", "--tiles", "1=3"], "option --tiles", "'3'"),
                (["quantize", x, "--qtype", "int8", "--tiles", "0=1,"], "option --tiles: '' is not AXIS=SIZE"),
                (["quantize", x, "--qtype", "int8", "--tiles", "0=1,0=2"], "option --tiles", "axis 0", "twice"),
                (["quantize", x, "--qtype", "int8", "--tiles", "0=1", "--axes", "0"], "--axes and --tiles", "axis 0"),
                (["quantize", x, "--qtype", "mxfp4"], "option --tiles: mxfp4", "--tiles AXIS=32\n"),
                (["quantize", x, "--qtype", "nvfp4"], "option --tiles: nvfp4", "--tiles AXIS=16\n"),
                (["quantize", x, "--qtype", "int8", "--scale-dtype", "flot32"], "option --scale-dtype", "'float32'"),
                (["quantize", x, "--qtype", "int8", "--scale-dtype", "int8"], "option --scale-dtype", "'int8'"),
                (["quantize", x, "--qtype", "int8", "-x"], "unknown option '-x'"),
                (["quantize", x, "--qtype", "int8", "-o"], "option --output needs a value"),
                (["quantize", x, "--qtype", "int8", "--batch", "1"], "unknown option '--batch'"),
                (["dequantize", x], "needs -o OUT"),
                (["dequantize", x, "-o", self.out], "is not quantized", "'x.scale'"),
                (["dot", x], "2 operands expected (LHS RHS), not 1"),
                (["gmm", x, x], "3 operands expected"),
                (["dot", x, x, "--contract", "1"], "option --contract", "'1' is not L,R"),
                (["dot", x, x, "--contract", "2,0"], "option --contract", "'2,0'"),
                (["dot", x, x, "--batch", "0,0", "--batch", "1,1"], "batch axes", "none to contract"),
                (["dot", x, x, "--dims", "1,0"], "option --dims", "'1,0'"),
                (["dot", x, x, "--dims", "(((1),(5)),((),()))"], "option --dims", "'5)),((),()))'"),
                (["dot", x, x, "--dims", "(((1),(0)),((),()))))"], "option --dims"),
                (["dot", x, x, "--dims", "(((0,0),(0,1)),((),()))"], "option --dims: lhs_contracting[1]: axis 0"),
                (["dot", x, x, "--dims", "x", "--contract", "1,0"], "--dims and --contract exclude"),
                (["dot", x, x, "--rules", "r.yml", "--act-qtype", "int8"], "--rules and --act-qtype exclude"),
                (["dot", x, x, "--rules", "r.yml", "--tile-size", "2"], "--rules and --tile-size exclude"),
                (["dot", x, x, "--tile-size", "2"], "option --tile-size has no effect without --weight-qtype"),
                (["dot", x, x, *E4M3, "--bwd-method", "absmax"], "option --bwd-method has no effect without --bwd-qtype"),
                (["dot", x, x, *E4M3, "--tile-size", "3"], "option --tile-size: '3'"),
                (["dot", x, x, *E4M3, "--weight-method", "max"], "option --weight-method: 'max'"),
                (["dot", x, x, *E4M3, "--act-method", "max"], "option --act-method: 'max'"),
                (["dot", x, x, *E4M3, "--bwd-qtype", "int8", "--bwd-tile-size", "x"], "option --bwd-tile-size: 'x'"),
                (["dot", x, x, *E4M3, "--sparsity", "2"], "option --sparsity: '2' is not N:M"),
                (["dot", x, x, *E4M3, "--sparsity", "5:4"], "option --sparsity:", "5"),
                (["dot", x, x, "--weight", "left"], "option --weight", "'left' is none of rhs, lhs, none"),
                (["dot", x, x, "--weight-qtype", "float9"], "option --weight-qtype", "'float9'"),
                (["dot", x, x, "--out-dtype", "f64"], "option --out-dtype", "'f64'"),
                (["dot", x, x, "--threads", "0"], "--threads", "'0'"),
                (["dot", x, x, "--threads", "2", "--server", "h:1"], "--threads is about this process"),
                (["gmm", x, x, "1", "--op", "matmul"], "option --op", "gmm, ragged_dot"),
                (["bench"], "no benchmark is named; expected gemm, gemv, gmm, vjp, quantize, peaks, step or rpc"),
                (["bench", "gem"], "no benchmark 'gem'; expected gemm"),
                (["bench", "gemm", "--shape", "1x2"], "option --shape: '1x2' is not MxKxN"),
                (["bench", "gemm", "--shape", "1x2x3x4"], "option --shape: '1x2x3x4'"),
                (["bench", "gemm", "--shape", "1,x2x3"], "option --shape: '1,x2x3'"),
                (["bench", "gemm", "--shape", "0x2x3"], "option --shape: '0x2x3'"),
                (["bench", "gemm", "--shape", "1,2,3,4,5,6,7,8,9x1,2,3,4,5,6,7,8x1,2"], "more than 64 shapes"),
                (["bench", "quantize", "--shape", "1x2x3"], "option --shape: '1x2x3' is not MxK"),
                (["bench", "gemm", "--dtype", "e4m3xe9"], "option --dtype: 'e9'", "e4m3, e5m2, int8, bf16, f32"),
                (["bench", "quantize", "--dtype", "e4m3xf32"], "from float8_e4m3fn to float32"),
                (["bench", "vjp", "--dtype", "e4m3"], "option --dtype: vjp takes f32 or bf16"),
                (["bench", "step", "--dtype", "e4m3"], "option --dtype: step takes float32 or bfloat16, not 'e4m3'"),
                (["bench", "gemm", "--kernels", "scalar,sse9"], "option --kernels: 'sse9' is not a kernel set"),
                (["bench", "gemm", "--core", "Abacus"], "option --core:"),
                (["bench", "gemm", "--layout", "mn"], "option --layout: 'mn'", "kn, nk, packed, all"),
                (["bench", "gemm", "--arm", "fp8"], "option --arm has no effect on gemm, which takes --shape, --dtype, "),
                (["bench", "gemm", "--server", "h:1"], "option --server has no effect on gemm"),
                (["bench", "gemm", "--core", "Haswell", "--threads", "2"], "option --core has no effect with --threads"),
                (["bench", "gemm", "--core", "Haswell", "--backend", "opencl"], "option --core has no effect with --backend"),
                (["bench", "gemm", "--kernels", "avx2,scalar", "--backend", "opencl"],
                 "option --kernels: 'avx2,scalar': beside --backend runs one set"),
                (["bench", "step", "--shape", "1x2x3"], "option --shape has no effect on step"),
                (["bench", "gemm", "--backend", "abacus"], "option --backend: there is no backend 'abacus'; expected one of"),
                (["bench", "peaks", "--backend", "opencl"], "option --backend has no effect on peaks"),
                (["bench", "gmm", "--experts", "4", "--top", "5"], "option --top: 5 is more than the 4 experts"),
                (["bench", "gemm", "--threads", "99999"], "option --threads: 99999"),
                (["bench", "rpc"], "--server HOST:PORT")):
            self.refused(arguments, *words)
        self.refused(["quantize", x, "--qtype", "int8"], "environment variable 'OCTET_CPU'", "'sse'", env={"OCTET_CPU": "sse"})

    def test_shapes_name_the_operand(self):
        x = self.file(x=("F32", [2, 3], f32(1, 2, 3, 4, 5, 6)), i=("I32", [2], i32(1, 2)))
        self.refused(["dot", f"{x}:x", f"{x}:x"], f"RHS '{x}:x': shape:", "[2, 3]")
        self.refused(["dot", f"{x}:i", f"{x}:x"], f"LHS '{x}:i': dtype:", "'int32'")
        self.refused(["quantize", f"{x}:i", "--qtype", "int8"], f"FILE '{x}:i': dtype:", "'int32'")
        self.refused(["dot", f"{x}:x", f"{x}:x", "--contract", "1,1", "--cotangent", f"{x}:x"],
                     f"option --cotangent '{x}:x': shape:", "[2, 3]")
        self.refused(["dot", f"{x}:x", f"{x}:x", "--contract", "1,1", "--reference", f"{x}:x"],
                     f"option --reference '{x}:x': shape [2, 3] is not the result's, [2, 2]")
        bad = self.file("bad", w=("F8_E4M3", [4], b"1234"), **{"w.scale": ("F32", [3], f32(1, 1, 1))})
        self.refused(["dequantize", bad, "-o", self.out], f"FILE '{bad}': scale.shape:", "[3]")

    def test_files(self):
        x = self.file(x=("F32", [2], f32(1, 2)))
        self.refused(["dot", "/no/such:x", x], "LHS '/no/such:x': cannot read '/no/such': No such file")
        self.refused(["dot", x, "/no/such"], "RHS '/no/such': cannot read")
        self.refused(["dot", x, "/"], "RHS '/': '/' is not a regular file")
        self.refused(["dot", x, f"{x}:y"], f"RHS '{x}:y': the file holds no array 'y'; the nearest of 1 is 'x'")
        self.refused(["quantize", x, "--qtype", "int8", "-o", x], "would lose its other arrays")
        self.refused(["quantize", x, "--qtype", "int8", "-o", "/dev/null"], "'/dev/null'", "not a regular file")
        self.refused(["quantize", x, "--qtype", "int8", "-o", "/no/such/x"], "cannot write '/no/such/x'")
        wide = self.file("wide", w=("F64", [1], bytes(8)))
        self.refused(["quantize", wide, "--qtype", "int8"], f"'{wide}': tensors[w].dtype: 'F64'")
        short = self.path / "short"
        short.write_bytes(b"\xff" * 8)
        self.refused(["quantize", str(short), "--qtype", "int8"], f"'{short}': header:", "18446744073709551615")
        empty = self.file("empty")
        self.refused(["quantize", empty, "--qtype", "int8"], "holds no arrays")
        self.refused(["quantize", f"{empty}:x", "--qtype", "int8"], "holds no arrays")

    def test_more_than_a_message_holds(self):
        """A file of 2.24 GiB, all of it a hole."""
        path = arrays.write(self.path / "x", {"x": ("F32", [0], b"")})
        content = pathlib.Path(path).read_bytes().replace(b'[0]', b'[600000000]').replace(b"[0, 0]", b"[0, 2400000000]")
        with open(path, "wb") as file:
            file.write((len(content) - 8).to_bytes(8, "little") + content[8:])
            file.truncate(len(content) + 2400000000)
        self.refused(["quantize", path, "--qtype", "int8"], "2.24 GiB", "at most 2 GiB", "cut the arrays into parts")

    def test_long_work_is_told_on_terminals_and_stops(self):
        n = 1500
        x = self.file(x=("F32", [n, n], bytes(4 * n * n)))
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        process = subprocess.Popen([support.OCTET, "dot", x, x, *E4M3, "-o", self.out], stdout=subprocess.DEVNULL,
                                   stderr=slave, env=support.environment(OCTET_CPU="scalar", TERM="xterm"))
        os.close(slave)
        told = b""
        while b": 2 s" not in told:
            told += os.read(master, 4096)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        self.assertEqual(process.wait(60), 130)
        self.assertLess(time.monotonic() - start, 10)
        with contextlib.suppress(OSError):  # EIO: the other end is closed, all is read
            while piece := os.read(master, 4096):
                told += piece
        self.assertIn(b"\rdot of [1500, 1500] and [1500, 1500]: 2 s (Ctrl-C stops it)", told)
        self.assertTrue(told.endswith(b"\r\x1b[Koctet: interrupted\r\n"), told)
        self.assertFalse(os.path.exists(self.out))

    def test_neither_grpc_nor_openblas_is_loaded(self):
        x = self.file(x=("F32", [2], f32(1, 2)))
        done = run("quantize", x, "--qtype", "int8", env={"LD_DEBUG": "files"})
        self.assertNotRegex(done.err, "grpc|openblas|octet_client")


class NoMemory(Case):
    def test_every_allocation_may_fail(self):
        x = self.file(x=("F32", [2, 2], f32(1, 2, 3, 4)), g=("F32", [2, 2], f32(1, 2, 3, 4)),
                      q=("I8", [2, 2], b"1234"))
        commands = [["quantize", f"{x}:x", "--qtype", "int8", "--tiles", "0=1,1=2"],
                    ["dequantize", f"{x}:q", "--scale", "g"],
                    ["dot", f"{x}:x", f"{x}:x", *E4M3, "--cotangent", f"{x}:g", "--reference", f"{x}:x",
                     "--sparsity", "1:2", "--compare-unquantized"]]
        for command in commands:
            n, failed = 1, 0
            while True:
                if os.path.exists(self.out):
                    os.unlink(self.out)
                done = run(*command, "-o", self.out, env={"OCTET_FAIL_ALLOC": str(n)})
                if done.rc == 0:
                    break
                self.assertEqual(done.rc, 2, f"{command} at {n}: {done.err}")
                self.assertIn("memory", done.err)
                failed += 1
                n = n + 1 if n < 60 else n * 21 // 20
            self.assertGreater(failed, 10, command)
            self.assertEqual([f for f in os.listdir(self.path) if ".tmp" in f], [])


SANITIZED = os.environ.get("OCTET_SANITIZE"), "speed under a sanitizer says nothing, and takes minutes"


@unittest.skipIf(*SANITIZED)
class Bench(Case):
    """Figures are there, agree with each other and name their peer; how large they are is no test's business."""

    SMALL = ("--runs", "2", "--kernels", "scalar")

    def rows(self, *arguments):
        got = json.loads(self.fine("bench", *arguments, "--json").out)
        machine = got["machine"]
        self.assertEqual(len(machine["cache_bytes"]), 3)
        for name in ("cpu", "cpus", "cpu_features", "system", "compiler", "openblas", "version", "git_commit"):
            self.assertIn(name, machine)
        self.assertGreater(machine["peaks"]["read_gbytes_per_s"], 0)
        self.assertGreater(machine["peaks"]["memcpy_gbytes_per_s"], 0)
        return got["rows"]

    def check(self, row, unit):
        self.assertGreater(row[unit], 0)
        self.assertGreaterEqual(row["ms"], row["ms_min"])
        if row["peer"] == "none":
            self.assertIsNone(row["ratio"])
            return
        self.assertAlmostEqual(row["ratio"], row["peer_ms"] / row["ms"], delta=1e-6 * row["ratio"])
        self.assertAlmostEqual(row["ratio"], row[unit] / row["peer_" + unit], delta=1e-6 * row["ratio"])
        self.assertAlmostEqual(row["ratio_best"], row["peer_ms_min"] / row["ms_min"], delta=1e-6 * row["ratio_best"])

    def test_quantize_beside_a_copy(self):
        rows = self.rows("quantize", *self.SMALL)
        self.assertEqual([(r["dtype"], r["qtype"], r["m"], r["k"]) for r in rows],
                         [(d, "float8_e4m3fn", m, k) for d in ("float32", "bfloat16") for m, k in ((256, 1024), (4096, 8192))])
        for row in rows:
            self.assertEqual((row["peer"], row["kernels"]), ("memcpy", "scalar"))
            self.check(row, "gbytes_per_s")
        rows = self.rows("quantize", *self.SMALL, "--shape", "4x64", "--dtype", "f32xint8", "--cold")
        self.assertEqual([(r["qtype"], r["operands"]) for r in rows], [("int8", "dram")])

    def test_gemm_beside_openblas(self):
        table = self.fine("bench", "gemm", "--shape", "4x64x64", "--runs", "2").out
        self.assertRegex(table, r"^gemm: float8_e4m3fn x float8_e4m3fn \[M,K\] x \[K,N\], packed, to float32")
        self.assertRegex(table, "(?m)^M +K +N +KERNELS +GFLOP/s +OF PEAK +PEER +ITS GFLOP/s +RATIO +BEST$")
        rows = self.rows("gemm", "--shape", "1,4x64x32,48", "--runs", "3", "--dtype", "e4m3,e5m2xe4m3,bf16,f32,int8",
                         "--layout", "all")
        sets = {row["kernels"] for row in rows}
        self.assertIn("scalar", sets)
        for row in rows:
            self.assertLessEqual({"kernels", "m", "k", "n", "peer", "ratio", "gflops", "peer_gflops"}, set(row))
            self.assertRegex(row["peer"], "^(openblas-.*|none)$")
            self.assertEqual(row["runs"], 3)
            self.check(row, "gflops")
        peers = {row["peer"] for row in rows}
        seen = {(r["m"], r["n"], r["dtype"], r["rhs"], r["kernels"], r["peer"]) for r in rows}
        self.assertEqual(len(seen), len(rows))
        self.assertEqual(len(rows), 2 * 2 * 5 * 3 * len(sets) * len(peers))

    def test_gemv_gmm_and_vjp(self):
        for row in self.rows("gemv", "--shape", "1,2x64x96", *self.SMALL):
            self.check(row, "gflops")
            self.assertGreater(row["gbytes_per_s"], 0)
            self.assertGreater(row["bandwidth_share"], 0)
            if row["m"] == 1:
                self.assertEqual(row["per_single_row"], 1)
        for row in self.rows("gmm", "--shape", "8x32x16", "--experts", "6", "--top", "2", "--layout", "all", *self.SMALL):
            self.assertEqual((row["tokens"], row["m"], row["experts"], row["top"]), (8, 16, 6, 2))
            self.check(row, "gflops")
        rows = self.rows("vjp", "--shape", "16x32x24", "--dtype", "f32,bf16", *self.SMALL)
        self.assertEqual({row["dtype"] for row in rows}, {"float32", "bfloat16"})
        for row in rows:
            self.check(row, "gflops")

    def test_a_device_is_named_and_stands_beside_the_cpu(self):
        done = run("bench", "gemm", "--shape", "4x64x64", "--runs", "2", "--backend", "opencl", "--json")
        if done.rc and ("libOpenCL" in done.err or "no device" in done.err):
            self.skipTest(done.err)
        self.assertEqual((done.rc, done.err), (0, ""))
        got = json.loads(done.out)
        self.assertTrue(got["machine"]["device"] and got["machine"]["driver"])
        [row] = got["rows"]
        self.assertEqual(row["kernels"], "opencl")
        self.assertRegex(row["peer"], "^cpu-")
        self.check(row, "gflops")
        table = self.fine("bench", "quantize", "--shape", "4x64", "--runs", "2", "--backend", "opencl").out
        self.assertIn(f"\ndevice: {got['machine']['device']}; {got['machine']['driver']}\n", table)

    def test_threads_are_compared_with_one(self):
        for row in self.rows("gemm", "--shape", "8x64x64", "--threads", "2", *self.SMALL):
            self.assertEqual((row["peer"], row["threads"]), ("one-thread", 2))
            self.check(row, "gflops")

    def test_goals_and_pictures_of_a_file(self):
        scripts = pathlib.Path(__file__).resolve().parents[2] / "scripts"
        document = {"commands": [], "rows": []}
        for kind, shape in (("gemm", "32,128x64x48"), ("gemv", "1,2,4x64x96")):
            got = json.loads(self.fine("bench", kind, "--shape", shape, "--runs", "1", "--json").out)
            document["machine"] = got["machine"]
            document["rows"] += [{"kind": kind, **row} for row in got["rows"]]
        figures, page = self.path / "figures.json", self.path / "speed.md"
        figures.write_text(json.dumps(document))
        table = subprocess.run([scripts / "bench-goals", "--from", figures], capture_output=True, text=True, check=True).stdout
        self.assertRegex(table, "^GOAL +WANTED +RANGE +CAP\n")
        self.assertRegex(table, "\n[0-9]+ of 24 met; not measured: [0-9]+\n$")
        marks = ("machine", "goals", "gemm", "gemv", "others", "peers")
        page.write_text("".join(f"<!-- figures: {name} -->\nold\n<!-- end -->\n" for name in marks))
        subprocess.run([scripts / "plot-performance", figures, "--docs", page], check=True)
        self.assertNotIn("old", page.read_text())
        self.assertIn("| goal | wanted | measured |", page.read_text())
        for name in ("roofline", "ratios"):
            self.assertTrue(xml.etree.ElementTree.parse(self.path / f"speed/{name}.svg").getroot().tag.endswith("svg"))
        for command in (["plot-performance"], ["bench-goals", "--from"]):
            done = subprocess.run([scripts / command[0], *command[1:], page], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("is no file of scripts/bench-goals --json", done.stderr)

    def test_peaks(self):
        rows = self.rows("peaks")
        self.assertEqual(len(rows), 5)
        self.assertGreater(rows[3]["value"], 0)


class RemoteIsLocal(Case):
    """One code path: with a daemon, the same bytes come out."""

    def test_same_answers(self):
        values = [((i * 37) % 101 - 50) / 7 for i in range(200 * 128)]
        x = self.file(x=("F32", [200, 128], f32(*values)), w=("F32", [128, 200], f32(*values[::-1])),
                      g=("F32", [200, 200], f32(*[v / 9 for v in values], *values[:14400])),
                      e=("F32", [2, 128, 100], f32(*values)), bad=("F32", [3, 3], f32(*range(9))))
        q = str(self.path / "q.safetensors")
        self.fine("quantize", f"{x}:x", "--qtype", "float8_e4m3fn", "--axes", "0", "-o", q)
        commands = [
            ["quantize", f"{x}:x", "--qtype", "float8_e4m3fn", "--axes", "0", "--tiles", "1=64"],
            ["quantize", f"{x}:x", "--qtype", "int8", "--method", "minmax", "--json"],
            ["dequantize", q],
            ["dot", f"{x}:x", f"{x}:w", *E4M3, "--bwd-qtype", "float8_e5m2", "--cotangent", f"{x}:g"],
            ["dot", q, f"{x}:w", "--json"],
            ["gmm", f"{x}:x", f"{x}:e", "120,80", *E4M3, "--tile-size", "64", "--compare-unquantized"],
            ["dot", f"{x}:x", f"{x}:bad"], ["quantize", f"{x}:x", "--qtype", "int9"],
            ["gmm", f"{x}:x", f"{x}:e", "120,81"], ["dot", f"{x}:x", f"{x}:w", "--act-qtype", "float9"],
        ]
        with support.daemon() as server:
            for command in commands:
                results = []
                for place in ([], ["--server", server]):
                    if os.path.exists(self.out):
                        os.unlink(self.out)
                    done = run(*command, "-o", self.out, *place)
                    written = pathlib.Path(self.out).read_bytes() if os.path.exists(self.out) else None
                    results.append((done.rc, done.out, done.err, written))
                self.assertEqual(results[0], results[1], command)
                self.assertEqual(results[0][3] is not None, results[0][0] == 0, command)

    def test_a_request_that_is_too_large_says_what_to_do(self):
        x = self.file(x=("F32", [1024, 512], bytes(4 * 1024 * 512)))
        config = self.path / "d.yml"
        config.write_text("limits: {max_message_bytes: 1500000, config_request_bytes: 1500000}\n")
        with support.daemon("--config", str(config)) as server:
            self.refused(["quantize", x, "--qtype", "int8", "--server", server], "accepts 1500000",
                         "limits.max_message_bytes")

    @unittest.skipIf(*SANITIZED)
    def test_bench_rpc(self):
        with support.daemon() as server:
            got = json.loads(self.fine("bench", "rpc", "--json", "--server", server).out)
        self.assertEqual([row["peer"] for row in got["rows"]],
                         ["bare-grpc"] * 5 + ["none", "in-process", "in-process"])
        self.assertEqual([row["connections"] for row in got["rows"]], [1, 64, 1, 64, 1, 1, 1, 1])
        self.assertIsNone(got["rows"][5]["ratio"])
        for row in got["rows"]:
            self.assertGreater(row["p50_us"], 0)
            self.assertGreaterEqual(row["p99_us"], row["p50_us"])
        for row in got["rows"][:5]:
            self.assertGreaterEqual(row["ratio"], row["ratio_min"])
            self.assertGreater(row["calls_per_s"], 0)
        self.assertGreater(got["rows"][4]["mbytes_per_s"], 0)
        self.assertGreater(got["rows"][7]["mbytes_per_s"], 0)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    support.OCTET = os.path.abspath(sys.argv[1])
    support.OCTETD = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] else None
    loader, suite = unittest.TestLoader(), unittest.TestSuite()
    for case in (Quantize, Dot, Gmm, WrongUse, NoMemory, Bench):
        suite.addTests(loader.loadTestsFromTestCase(case))
    if support.OCTETD:
        suite.addTests(loader.loadTestsFromTestCase(RemoteIsLocal))
    else:
        print("not run: RemoteIsLocal (octetd is not built)")
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
