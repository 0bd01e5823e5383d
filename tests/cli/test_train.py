#!/usr/bin/env python3
"""Sessions, training and plots from the command line.

What could break: a run that does not go on as if it had never stopped, a figure in the wrong column, data that is
silently cut or misread, a picture that no program opens, a checkpoint that is lost without a word.

usage: test_train.py OCTET [OCTETD]
"""
import csv
import json
import math
import os
import pathlib
import struct
import sys
import unittest
import xml.etree.ElementTree as ElementTree

import support
from support import folder, run

SVG = "{http://www.w3.org/2000/svg}"
TEXT = "".join(f"the {i % 7} brown foxes jump over {i % 5} lazy dogs and run away from {i % 11} cats\n"
               for i in range(400))
# Small enough that a step takes milliseconds.
SMALL = ["deepseek3-tiny", "base_emb_dim=32", "base_num_query_heads=2", "base_num_kv_heads=2", "base_mlp_dim=32",
         "base_moe_mlp_dim=16", "base_num_decoder_layers=2", "first_num_dense_layers=1", "vocab_size=256",
         "num_experts=4", "num_experts_per_tok=2", "shared_experts=1", "q_lora_rank=16", "kv_lora_rank=16",
         "qk_nope_head_dim=8", "qk_rope_head_dim=4", "v_head_dim=8", "mtp_num_layers=1", "dtype=float32",
         "sparse_matmul=true", "megablox=false", "learning_rate=0.01", "scan_layers=false"]


def write_safetensors(path, **arrays):
    """name=(dtype, shape, bytes)"""
    header, at = {}, 0
    for name, (dtype, shape, data) in arrays.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a[2] for a in arrays.values()))


def rows_of(path):
    with open(path, newline="") as file:
        return [{k: float(v) if v else math.nan for k, v in row.items()} for row in csv.DictReader(file)]


def curves_of(path):
    """{class: points} of the curves that are drawn; fails when the file is no SVG."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == SVG + "svg", root.tag
    out = {}
    for element in root.iter(SVG + "path"):
        if "curve" in element.get("class", "") and "L" in element.get("d"):
            out[element.get("class")] = [tuple(map(float, point.split())) for point in
                                         element.get("d")[1:].split("L")]
    return out


class Plot(unittest.TestCase):
    def draw(self, text, *options):
        with folder(a_csv=text) as path:
            done = run("plot", f"{path}/a.csv", "-o", f"{path}/a.svg", *options)
            self.assertEqual((done.rc, done.out, done.err), (0, "", ""))
            texts = [e.text for e in ElementTree.parse(f"{path}/a.svg").getroot().iter(SVG + "text")]
            return curves_of(f"{path}/a.svg"), texts

    def test_points_lie_where_the_axes_say(self):
        curves, texts = self.draw("step,eval_main,other\n0,4,\n5,3,1\n10,,1\n20,2,1\n")
        self.assertEqual(list(curves), ["curve c0"])
        points = curves["curve c0"]
        self.assertEqual(len(points), 3, "a cell without a number is no point")
        (x0, y0), (x1, y1), (x2, y2) = points
        self.assertAlmostEqual((x1 - x0) / (x2 - x0), 5 / 20, places=2)
        self.assertAlmostEqual((y1 - y0) / (y2 - y0), 0.5, places=2)
        self.assertLess(y0, y2, "larger numbers are higher up")
        for expected in ("0", "20", "eval_main", "step"):
            self.assertIn(expected, texts)

    def test_many_points_are_drawn_by_means(self):
        lines = "".join(f"{i},{i}\n" for i in range(100000))
        curves, _ = self.draw("step,train_main\n" + lines)
        points = curves["curve c0 faint"]
        self.assertLess(len(points), 1000)
        slope = (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
        for x, y in points:
            self.assertAlmostEqual(y, points[0][1] + slope * (x - points[0][0]), delta=0.2)

    def test_texts_cannot_break_the_file(self):
        _, texts = self.draw("step,eval_main\n0,1\n1,2\n", "--title", "<script>&'\"\x07 fp8")
        self.assertIn("<script>&'\" fp8", texts)

    def test_one_value_and_constant_curves_are_drawn(self):
        for text in ("step,eval_main\n7,2.5\n", "step,eval_main\n0,1\n1,1\n2,1\n", "step,eval_main\n"):
            self.draw(text)

    def test_several_files_have_a_colour_each(self):
        text = "step,eval_main,eval_mtp\n0,4,5\n1,3,4\n"
        with folder(a_csv=text, b_csv=text) as path:
            done = run("plot", f"one={path}/a.csv", f"{path}/b.csv", "-o", f"{path}/c.svg")
            self.assertEqual(done.rc, 0, done.err)
            self.assertEqual(sorted(curves_of(f"{path}/c.svg")),
                             ["curve c0", "curve c0 dash", "curve c1", "curve c1 dash"])
            picture = pathlib.Path(path, "c.svg").read_text()
            self.assertIn("one eval_main", picture)
            self.assertIn("b eval_mtp", picture)

    def test_errors_name_file_and_column(self):
        with folder(a_csv="step,loss\n0,1\nx,2\n", b_csv="step,loss\n0,1,2\n", c_csv="time,loss\n0,1\n") as path:
            for file, options, words in (("a", (), ("a.csv", "line 3", "'step'", "'x'")),
                                         ("b", (), ("b.csv", "line 2")),
                                         ("c", (), ("c.csv", "step")),
                                         ("c", ("--columns", "lost"), ("c.csv",)),
                                         ("d", (), ("d.csv", "No such file"))):
                done = run("plot", f"{path}/{file}.csv", "-o", f"{path}/x.svg", *options)
                self.assertEqual((done.rc, done.out), (2, ""))
                for word in words:
                    self.assertIn(word, done.err)
                self.assertFalse(os.path.exists(f"{path}/x.svg"))
        self.assertIn("-o OUT.svg", run("plot", "a.csv").err)


class WrongUse(unittest.TestCase):
    def fails(self, *arguments, words):
        done = run(*arguments, env={"TMPDIR": "/tmp"})
        self.assertEqual((done.rc, done.out), (2, ""), done.err)
        for word in words:
            self.assertIn(word, done.err)

    def test_arguments(self):
        self.fails("train", words=["MODEL"])
        self.fails("train", "deepseek3-tiny", words=["--data"])
        self.fails("train", "--data", "x", words=["MODEL"])
        self.fails("train", "deepseek3-tiny", "--data", "x", "--steps", "0", words=["--steps", "from 1 up"])
        self.fails("train", "deepseek3-tiny", "--data", "x", "--seed", "-1", words=["--seed", "from 0 up"])
        self.fails("train", "deepseek3-tiny", "--data", "x", "--tokens", "u8", words=["--tokens", "u16"])
        self.fails("train", "deepseek3-tiny", "--data", "x", "--resume", "--overwrite", words=["exclude each other"])
        self.fails("train", "deepseek3-tiny", "--data", "x", "--eval", "y", "--eval-fraction", "0.1",
                   words=["exclude each other"])
        self.fails("train", "deepseek3-tiny", "--data", "x", "--eval-every", "3", words=["--eval-fraction"])
        self.fails("session", words=["create", "checkpoints"])
        self.fails("session", "lst", words=["'list'"])
        self.fails("session", "create", words=["MODEL"])
        self.fails("session", "show", words=["SESSION"])
        self.fails("session", "get", "s", words=["-o OUT"])
        self.fails("session", "save", "s", words=["CHECKPOINT", "1 operand"])

    def test_data(self):
        with folder(empty_txt="", short_txt="abc", text_txt="äb" * 200) as path:
            odd = f"{path}/odd.bin"
            pathlib.Path(odd).write_bytes(b"123")
            pathlib.Path(f"{path}/large.bin").write_bytes(struct.pack("<4H", 1, 2, 255, 256))
            write_safetensors(f"{path}/f.safetensors", x=("F32", [2], b"12345678"))
            write_safetensors(f"{path}/n.safetensors", x=("I32", [2], struct.pack("<2i", 5, -1)))
            for file, options, words in (
                    ("missing.txt", (), ("missing.txt", "No such file")),
                    ("empty.txt", (), ("empty.txt", "empty")),
                    (".", (), ("not a regular file",)),
                    ("odd.bin", ("--tokens", "u16"), ("odd.bin", "3 bytes")),
                    ("large.bin", ("--tokens", "u16"), ("token 3 is 256", "vocab_size is 256")),
                    ("f.safetensors", (), ("float32", "int32")),
                    ("n.safetensors:x", (), ("token 1 is -1",)),
                    ("n.safetensors:y", (), ("'y'",)),
                    ("text.txt", ("vocab_size=128",), ("token 0 is 195", "128", "bytes need 256")),
                    ("text.txt", ("--eval-fraction", "1.5"), ("--eval-fraction", "between 0 and 1"))):
                self.fails("train", *SMALL, *options, "--data", f"{path}/{file}", words=["option --", *words])

    def test_a_model_that_is_not_there(self):
        with folder(a_txt="abc") as path:
            self.fails("train", "deepseek3-tinny", "--data", f"{path}/a.txt", words=["'deepseek3-tiny'"])

    def test_sessions_need_a_daemon(self):
        for arguments in (["list"], ["show", "x"], ["create", "deepseek3-tiny"], ["checkpoints"], ["delete", "x"]):
            self.fails("session", *arguments, words=["sessions live in a daemon", "--server"])
        done = run("session", "list", "--server", f"127.0.0.1:{support.free_port()}", "--timeout", "10")
        self.assertEqual((done.rc, done.out), (2, ""))
        self.assertEqual(done.err.count("\n"), 1, done.err)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    support.OCTET = os.path.abspath(sys.argv[1])
    support.OCTETD = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] else None
    loader, suite = unittest.TestLoader(), unittest.TestSuite()
    for case in (Plot, WrongUse):
        suite.addTests(loader.loadTestsFromTestCase(case))
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
