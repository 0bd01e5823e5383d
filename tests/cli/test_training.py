#!/usr/bin/env python3
"""Sessions, training and plots from the command line.

What could break: a run that does not go on as if it had never stopped, a figure in the wrong column, data that is
silently cut or misread, a picture that no program opens, a checkpoint that is lost without a word.

usage: test_training.py OCTET [OCTETD]
"""
import contextlib
import csv
import json
import math
import os
import pathlib
import re
import shlex
import signal
import struct
import subprocess
import sys
import time
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

    def test_the_first_step_that_is_drawn(self):
        curves, texts = self.draw("step,eval_main\n0,900\n10,3\n20,2\n", "--first-step", "10")
        self.assertEqual(len(curves["curve c0"]), 2)
        self.assertNotIn("0", texts)
        self.assertIn("10", texts)

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


class BenchStep(unittest.TestCase):
    def test_has_the_promised_figures(self):
        done = run("bench", "step", "--model", "tiny", "--runs", "1", "--json")
        self.assertEqual((done.rc, done.err), (0, ""))
        rows = json.loads(done.out)["rows"]
        self.assertEqual([(r["model"], r["arm"]) for r in rows], [("tiny", a) for a in ("none", "fp8", "fp8mtp")])
        for row in rows:
            for name in ("forward_ms", "step_ms", "tokens_per_second", "peak_bytes", "ratio", "peer_step_ms"):
                self.assertGreater(row[name], 0, name)
            ops = {op["op"]: op for op in row["ops"]}
            for name in ("dot_general", "grouped_matmul", "attention", "rms_norm", "optimizer"):
                self.assertGreater(ops[name]["forward_ms"] + ops[name]["backward_ms"], 0, name)
        self.assertEqual(rows[0]["peer_step_ms"], 4.07)

    def test_table(self):
        done = run("bench", "step", "--model", "tiny", "--arm", "fp8mtp", "--dtype", "bfloat16", "--runs", "1")
        self.assertEqual((done.rc, done.err), (0, ""))
        self.assertIn("by op", done.out)
        self.assertIn("grouped_matmul", done.out)

    def test_wrong_use(self):
        for option, value in (("--model", "huge"), ("--arm", "int4"), ("--dtype", "float16"), ("--runs", "0")):
            done = run("bench", "step", option, value)
            self.assertEqual((done.rc, done.out), (2, ""))
            self.assertIn(option, done.err)


def train(path, *arguments, **options):
    """A run of the small model on a.txt with a daemon of its own, in the folder."""
    return run("train", *SMALL, "--data", f"{path}/a.txt", "--batch", "2", "--length", "16", "--data-dir",
               f"{path}/data", *arguments, **options)


LOSSES = ("train_total", "train_main", "train_mtp", "train_acceptance", "grad_norm", "learning_rate", "eval_main",
          "eval_mtp", "eval_acceptance")


class Training(unittest.TestCase):
    def assert_same(self, mine, theirs):
        self.assertEqual([row["step"] for row in mine], [row["step"] for row in theirs])
        for a, b in zip(mine, theirs):
            for column in LOSSES:
                self.assertTrue(a[column] == b[column] or (math.isnan(a[column]) and math.isnan(b[column])),
                                f"step {a['step']} {column}: {a[column]} and {b[column]}")

    def test_learns_and_tells(self):
        with folder(a_txt=TEXT) as path:
            done = train(path, "--steps", "60", "--eval-fraction", "0.1", "--eval-every", "20", "--csv",
                         f"{path}/a.csv", "--plot", f"{path}/a.svg", "quantization=fp8_full", "quantize_mtp=true")
            self.assertEqual((done.rc, done.err), (0, ""))
            rows = rows_of(f"{path}/a.csv")
            self.assertEqual([row["step"] for row in rows], list(range(61)))
            self.assertAlmostEqual(rows[1]["train_main"], math.log(256), delta=1.5)
            self.assertLess(rows[60]["train_main"], rows[1]["train_main"] - 1)
            self.assertLess(rows[60]["eval_main"], rows[0]["eval_main"] - 1)
            self.assertEqual([row["step"] for row in rows if not math.isnan(row["eval_mtp"])], [0, 20, 40, 60])
            self.assertEqual(rows[1]["learning_rate"], 0, "warm-up starts at 0")
            self.assertTrue(all(0 <= row["train_acceptance"] <= 1 for row in rows[1:]))
            for row in rows[1:]:
                self.assertAlmostEqual(row["train_total"], row["train_main"] + 0.1 * row["train_mtp"], places=5)
                self.assertEqual(row["tokens"], row["step"] * 32)
            self.assertEqual(len(curves_of(f"{path}/a.svg")), 4)
            for word in ("done at step 60", "unigram entropy", "saved checkpoint 'train'", "tokens/s"):
                self.assertIn(word, done.out)

    def test_the_first_loss_of_an_unquantized_model_is_the_unquantized_one(self):
        """The same start and the same data, whatever is quantized; quantization itself is felt."""
        with folder(a_txt=TEXT) as path:
            first = {}
            for name, settings in (("none", []), ("again", []), ("fp8", ["quantization=fp8_full"]),
                                   ("mtp", ["quantization=fp8_full", "quantize_mtp=true"])):
                done = train(path, "--steps", "1", "--csv", f"{path}/{name}.csv", "--overwrite", *settings)
                self.assertEqual(done.rc, 0, done.err)
                first[name] = rows_of(f"{path}/{name}.csv")[-1]
            for column in ("train_main", "train_mtp", "grad_norm"):
                self.assertEqual(first["none"][column], first["again"][column])
            self.assertNotEqual(first["none"]["train_main"], first["fp8"]["train_main"])
            self.assertAlmostEqual(first["none"]["train_main"], first["fp8"]["train_main"], delta=0.1)
            self.assertEqual(first["fp8"]["train_main"], first["mtp"]["train_main"])
            self.assertNotEqual(first["fp8"]["train_mtp"], first["mtp"]["train_mtp"])

    def start(self, path, name, *arguments):
        return subprocess.Popen(
            [support.OCTET, "train", *SMALL, "--data", f"{path}/a.txt", "--batch", "2", "--length", "16", "--data-dir",
             f"{path}/data", "--steps", "40", "--eval-fraction", "0.1", *arguments, "--csv",
             f"{path}/{name}.csv", "--checkpoint", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=support.environment())

    def wait_for_rows(self, file, rows):
        end = time.monotonic() + 60
        while time.monotonic() < end:  # until some steps have been taken
            if os.path.exists(file) and len(rows_of(file)) > rows:
                break
            time.sleep(0.002)

    def interrupted(self, path, name, rows, number=signal.SIGINT):
        process = self.start(path, name, "--eval-every", "10")
        self.wait_for_rows(f"{path}/{name}.csv", rows)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def test_other_signals_save_too(self):
        """A batch system sends SIGTERM, a terminal that is closed SIGHUP."""
        with folder(a_txt=TEXT) as path:
            for number in (signal.SIGTERM, signal.SIGHUP):
                rc, out, err = self.interrupted(path, number.name, 3, number)
                if rc != 0:  # else the run ended before the signal came
                    self.assertEqual((rc, err), (128 + number, ""))
                self.assertIn(f"saved checkpoint '{number.name}'", out)

    def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(self):
        with folder(a_txt=TEXT) as path:
            whole = train(path, "--steps", "40", "--eval-fraction", "0.1", "--eval-every", "10", "--csv",
                          f"{path}/whole.csv", "--checkpoint", "whole")
            self.assertEqual(whole.rc, 0, whole.err)
            rc, out, err = self.interrupted(path, "part", 5)
            if rc == 0:
                self.skipTest("the run ended before the signal came")
            self.assertEqual((rc, err), (130, ""))
            self.assertIn("saved checkpoint 'part'", out)
            command = next(line for line in out.splitlines() if line.startswith("  octet "))
            self.assertIn("--resume", command)
            kept = len(rows_of(f"{path}/part.csv"))
            self.assertLess(kept, 41)
            again = run(*shlex.split(command)[1:])
            self.assertEqual((again.rc, again.err), (0, ""))
            self.assert_same(rows_of(f"{path}/part.csv"), rows_of(f"{path}/whole.csv"))

    def test_checkpoints_are_not_lost(self):
        with folder(a_txt=TEXT) as path:
            self.assertEqual(train(path, "--steps", "2").rc, 0)
            done = train(path, "--steps", "2")
            self.assertEqual(done.rc, 2)
            for word in ("checkpoint 'train' is there, at step 2", "--resume", "--overwrite", "--checkpoint"):
                self.assertIn(word, done.err)
            done = train(path, "--steps", "1", "--resume")
            self.assertEqual(done.rc, 2)
            self.assertIn("at step 2, beyond --steps 1", done.err)
            done = train(path, "--steps", "3", "--checkpoint", "other", "--resume")
            self.assertEqual(done.rc, 2)
            self.assertIn("there is no checkpoint 'other'", done.err)
            self.assertEqual(train(path, "--steps", "1", "--overwrite").rc, 0)

    def test_what_cannot_be_kept_is_told_before_the_run(self):
        with folder(a_txt=TEXT) as path:
            for options, words in ((("--checkpoint", "a b"), ("option --checkpoint", "letters")),
                                   (("--checkpoint", "../x"), ("option --checkpoint", "begins with a dot")),
                                   (("--plot", f"{path}/none/a.svg"), ("option --plot", "none/a.svg")),
                                   (("--csv", f"{path}/none/a.csv"), ("option --csv", "none/a.csv")),
                                   (("--plot", f"{path}/a.PNG"), ("option --plot", "SVG"))):
                done = train(path, "--steps", "2", *options)
                self.assertEqual((done.rc, done.out), (2, ""), options)
                for word in words:
                    self.assertIn(word, done.err)
            self.assertFalse(os.path.exists(f"{path}/a.PNG"))

    def test_a_run_is_not_lost_with_its_picture(self):
        with folder(a_txt=TEXT) as path:
            os.mkdir(f"{path}/p")
            process = self.start(path, "pic", "--plot", f"{path}/p/a.svg", "--eval-every", "1")
            self.wait_for_rows(f"{path}/pic.csv", 3)
            os.rename(f"{path}/p", f"{path}/q")
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, err)
            self.assertEqual(err.count("warning: cannot write"), 1, err)
            self.assertIn("saved checkpoint 'pic' at step 40", out)

    def test_the_head_tells_what_is_quantized(self):
        """The share is that of the trace, and whether the MTP layer is in it can be read."""
        with folder(a_txt=TEXT) as path:
            for settings, mtp in ((["quantization="], None), (["quantization=fp8_full"], False),
                                  (["quantization=fp8_full", "quantize_mtp=true"], True)):
                done = train(path, "--steps", "1", "--overwrite", *settings)
                self.assertEqual(done.rc, 0, done.err)
                head = done.out.splitlines()[0]
                self.assertIn(" parameters, ", head)
                if mtp is None:
                    self.assertTrue(head.endswith("; nothing quantized"), head)
                    continue
                share = 1e2 * self.trace_share(SMALL + settings)
                self.assertIn(f"; {share:.1f} % of the forward's FLOPS quantized, ", head)
                self.assertEqual(head.endswith(", 0.0 % of the MTP layers'"), not mtp, head)

    def test_a_rule_that_matches_nothing_is_told(self):
        with folder(a_txt=TEXT, r_yml="rules:\n- module_path: 'decoder/nowhere'\n  weight_qtype: int8\n") as path:
            done = train(path, "--steps", "1", "--rules", f"{path}/r.yml")
            self.assertEqual(done.rc, 0)
            self.assertIn("; nothing quantized", done.out.splitlines()[0])
            self.assertEqual(done.err, "octet: warning: rule 0 (module_path 'decoder/nowhere') matches no op\n")

    def trace_share(self, words):
        trace = json.loads(run("trace", *words, "--batch", "2", "--length", "16", "--json").out)
        coverage = trace["trace"]["coverage"]
        return int(coverage["flops_quantized"]) / int(coverage["flops_total"])

    def test_a_resumed_run_has_the_settings_that_are_given(self):
        """A checkpoint gives the numbers; what is quantized from then on is what the command says."""
        with folder(a_txt=TEXT) as path:
            self.assertEqual(train(path, "--steps", "3", "quantization=").rc, 0)
            for name in ("one", "two"):
                for file in pathlib.Path(f"{path}/data").iterdir():
                    os.makedirs(f"{path}/{name}", exist_ok=True)
                    pathlib.Path(f"{path}/{name}/{file.name}").write_bytes(file.read_bytes())
            losses = []
            for name, setting in (("one", "quantization="), ("two", "quantization=fp8_full")):
                done = train(path, "--steps", "4", "--resume", "--csv", f"{path}/{name}.csv", "--data-dir",
                             f"{path}/{name}", setting)
                self.assertEqual(done.rc, 0, done.err)
                losses.append(rows_of(f"{path}/{name}.csv")[-1]["train_main"])
            self.assertNotEqual(losses[0], losses[1])
            self.assertAlmostEqual(losses[0], losses[1], delta=0.1)
            done = train(path, "--steps", "4", "--resume", "--data-dir", f"{path}/one", "base_moe_mlp_dim=32")
            self.assertEqual(done.rc, 2, "a checkpoint of another model")

    def test_a_full_folder_ends_no_run_on_the_way(self):
        """Saves on the way may fail; the last may not, and it says so."""
        with folder(a_txt=TEXT) as path:
            process = self.start(path, "full", "--save-every", "1")
            self.wait_for_rows(f"{path}/full.csv", 3)
            os.rename(f"{path}/data", f"{path}/gone")
            out, err = process.communicate(timeout=60)
            if "at step 40" in out:
                self.skipTest("the run ended before its folder was gone")
            self.assertEqual(process.returncode, 2)
            self.assertIn("octet: warning: no checkpoint at step ", err)
            self.assertRegex(err.splitlines()[-1], r"^octet: checkpoint 'full' is at step \d+ .*--resume goes on")
            self.assertEqual(rows_of(f"{path}/full.csv")[-1]["step"], 40)

    def test_nothing_to_do(self):
        with folder(a_txt=TEXT) as path:
            self.assertEqual(train(path, "--steps", "2").rc, 0)
            before = {f.name: f.stat().st_mtime_ns for f in pathlib.Path(f"{path}/data").iterdir()}
            done = train(path, "--steps", "2", "--resume")
            self.assertEqual((done.rc, done.err), (0, ""))
            self.assertIn("nothing to do: checkpoint 'train' is at step 2 of 2", done.out)
            self.assertEqual({f.name: f.stat().st_mtime_ns for f in pathlib.Path(f"{path}/data").iterdir()}, before)

    def test_rows_are_printed_where_there_is_an_evaluation(self):
        with folder(a_txt=TEXT) as path:
            done = train(path, "--steps", "60", "--eval-fraction", "0.1")
            steps = [int(line[:6]) for line in done.out.splitlines() if line[:6].strip().isdigit()]
            self.assertLess(max(map(len, done.out.splitlines()[2:25])), 80)
            self.assertEqual(steps, [0, 1, *range(3, 61, 3)])

    def test_documents_do_not_see_each_other(self):
        """The loss of a row of two documents is a sum of theirs: exchanging one changes its own part alone."""
        firsts = [[97 + i % 20 for i in range(8)] + [10], [200 - 3 * i for i in range(8)] + [10]]
        seconds = [[98 + i % 7 for i in range(8)], [30 + 11 * i for i in range(8)]]
        loss = {}
        with folder() as path:
            for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
                tokens = firsts[i] + seconds[j]
                write_safetensors(f"{path}/t.safetensors", tokens=("I32", [1, 17], struct.pack("<17i", *tokens)))
                done = run("train", *SMALL, "--data", f"{path}/t.safetensors", "--document-end", "10", "--batch", "1",
                           "--length", "16", "--steps", "1", "--csv", f"{path}/a.csv", "--data-dir", f"{path}/data",
                           "--overwrite", "--seed", "1")
                self.assertEqual(done.rc, 0, done.err)
                row = rows_of(f"{path}/a.csv")[-1]
                loss[i, j] = row["train_main"], row["train_mtp"]
        self.assertEqual(len(set(loss.values())), 4)
        for part in (0, 1):
            self.assertAlmostEqual(loss[0, 0][part] + loss[1, 1][part], loss[0, 1][part] + loss[1, 0][part], places=5)

    def test_rows_of_another_length_are_refused(self):
        with folder() as path:
            write_safetensors(f"{path}/r.safetensors", tokens=("I32", [3, 5], struct.pack("<15i", *range(15))))
            done = run("train", *SMALL, "--data", f"{path}/r.safetensors", "--length", "16", "--batch", "1", "--data-dir",
                       f"{path}/data")
            self.assertEqual((done.rc, done.out), (2, ""))
            self.assertIn("its rows have 5 tokens", done.err)
            self.assertIn("needs 17", done.err)


class Guide(unittest.TestCase):
    """The commands of README.md and docs/training.md, run as they stand there: a newcomer copies them."""
    ROOT = pathlib.Path(__file__).parents[2]

    def blocks(self, page, word):
        blocks = re.findall(r"^```sh\n(.*?)^```", (self.ROOT / page).read_text(), re.M | re.S)
        return [block for block in blocks if word in block]

    def shell(self, path, text, server="127.0.0.1:0"):
        """In a folder that has the repository's files beside what the commands write."""
        for name in ("README.md", "docs", "configs"):
            if not os.path.exists(f"{path}/{name}"):
                os.symlink(self.ROOT / name, f"{path}/{name}")
        if not os.path.exists(f"{path}/octet"):
            os.symlink(os.path.abspath(support.OCTET), f"{path}/octet")
        text = text.replace("--steps 500", "--steps 6").replace("127.0.0.1:50051", server)
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=path, capture_output=True, text=True, timeout=120,
                              env=support.environment(PATH=f"{path}:{os.environ['PATH']}"))
        self.assertEqual((done.returncode, done.stderr), (0, ""), text)
        return done.stdout

    def test_first_runs(self):
        for page in ("README.md", "docs/training.md"):
            for block in self.blocks(page, "octet train "):
                with folder() as path:
                    out = self.shell(path, block)
                    self.assertIn("done at step 6 of 6", out)
                    self.assertEqual(len(curves_of(f"{path}/loss.svg")), 4)
                    self.assertEqual(rows_of(f"{path}/loss.csv")[-1]["step"], 6)

    def test_the_head_that_readme_shows(self):
        with folder() as path:
            head = self.shell(path, self.blocks("README.md", "octet train ")[0]).splitlines()[0]
        pattern = re.escape(head).replace(re.escape(re.search(r"[0-9.]+ MiB", head)[0]), "[0-9.]+ MiB")
        # Memory depends on the threads that a call gets.
        self.assertRegex((self.ROOT / "README.md").read_text(), pattern + "\n")

    def test_sessions(self):
        [block] = self.blocks("docs/training.md", "octet session create")
        with folder() as path, support.daemon("--data-dir", path) as server:
            out = self.shell(path, block, server)
            self.assertIn("saved checkpoint 'before-the-change'", out)
            self.assertEqual(out.count("\nlease "), 2)
            self.assertEqual(out.count("got "), 3)


class Sessions(unittest.TestCase):
    def fine(self, *arguments):
        done = run(*arguments)
        self.assertEqual((done.rc, done.err), (0, ""), arguments)
        return done

    def test_filled_read_saved_and_ended(self):
        with folder() as path, support.daemon("--data-dir", path) as server:
            at = ["--server", server]
            made = json.loads(self.fine("session", "create", *SMALL, "--seed", "3", "--batch", "1", "--length", "16", "--json",
                                        *at).out)
            name = made["session_id"]
            self.assertIn(name, self.fine("session", "list", *at).out)
            self.assertIn(name, self.fine("session", "show", name, *at).out)
            self.fine("session", "get", name, "-o", f"{path}/one.safetensors", *at)
            wanted = {p["name"]: p["shape"] for p in made["parameters"]}
            got = tensors_of(f"{path}/one.safetensors")
            self.assertEqual({n: t[1] for n, t in got.items()}, {n: list(map(int, s)) for n, s in wanted.items()})
            self.fine("session", "get", name, "decoder/.*norm/scale", "-o", f"{path}/norms.safetensors", *at)
            norms = tensors_of(f"{path}/norms.safetensors")
            self.assertTrue(norms and all(n.startswith("decoder/") and n.endswith("norm/scale") for n in norms))
            for tensor in norms.values():
                self.assertEqual(set(struct.unpack(f"<{len(tensor[2]) // 4}f", tensor[2])), {1.0})
            other = json.loads(self.fine("session", "create", *SMALL, "--empty", "--batch", "1", "--length", "16", "--json",
                                         *at).out)["session_id"]
            self.fine("session", "put", other, f"{path}/one.safetensors", *at)
            self.fine("session", "get", other, "-o", f"{path}/two.safetensors", *at)
            self.assertEqual(tensors_of(f"{path}/two.safetensors"), got)
            self.fine("session", "save", other, "kept", *at)
            self.assertIn("kept", self.fine("session", "checkpoints", *at).out)
            self.fine("session", "load", name, "kept", *at)
            again = json.loads(self.fine("session", "create", "--from", "kept", "--json", *at).out)["session_id"]
            self.fine("session", "get", again, "-o", f"{path}/three.safetensors", *at)
            self.assertEqual(tensors_of(f"{path}/three.safetensors"), got)
            for session in (name, other, again):
                self.fine("session", "delete", session, *at)
            self.assertIn("no session", run("session", "list", *at).err)
            done = run("session", "show", name, *at)
            self.assertEqual((done.rc, done.out), (2, ""))
            self.assertIn(name, done.err)
            for arguments in (["put", name, f"{path}/one.safetensors"], ["get", name, "-o", f"{path}/x.safetensors"],
                              ["save", name, "x"], ["load", name, "x"], ["delete", name]):
                done = run("session", *arguments, *at)
                self.assertEqual((done.rc, done.out), (2, ""), arguments)
                self.assertEqual(done.err.count("\n"), 1, done.err)
            self.assertFalse(os.path.exists(f"{path}/x.safetensors"))

    def test_it_says_where_it_runs_and_how_it_adds_up(self):
        with contextlib.ExitStack() as stack:
            try:
                server = stack.enter_context(support.daemon("--backends", "cpu,opencl"))
            except AssertionError as error:
                if "libOpenCL" not in str(error) and "no device" not in str(error):
                    raise
                self.skipTest(str(error))
            create = ["session", "create", *SMALL, "quantization=fp8_full", "--batch", "1", "--length", "16", "--server", server]
            there = self.fine(*create, "--backend", "opencl", "--accumulation", "fast").out
            self.assertRegex(there, r"\nbackend     [1-9]\d* of \d+ traced ops on opencl, the rest on the CPU\n")
            self.assertIn("\nadditions   in any order (FAST)\n", there)
            self.assertNotRegex(self.fine(*create).out, r"\n(backend|additions) ")
            done = run(*create, "--backend", "opencl:7")
            self.assertEqual((done.rc, done.out), (2, ""))
            self.assertIn("option --backend: 'opencl:7' is no device of this server; it has cpu:0, opencl:0", done.err)
            with folder(a_txt=TEXT) as path:
                done = self.fine("train", *SMALL, "quantization=fp8_full", "--data", f"{path}/a.txt", "--batch", "1", "--length",
                                 "16", "--steps", "1", "--backend", "opencl", "--data-dir", path)
                self.assertRegex(done.out.splitlines()[0], r" traced ops on opencl$")

    def test_a_file_that_does_not_fit_is_refused_and_named(self):
        with folder() as path, support.daemon("--data-dir", path) as server:
            at = ["--server", server]
            name = json.loads(self.fine("session", "create", *SMALL, "--batch", "1", "--length", "16", "--json",
                                        *at).out)["session_id"]
            for arrays, words in (({"nothing": ("F32", [1], b"1234")}, ["nothing"]),
                                  ({"decoder/decoder_norm/scale": ("F32", [33], bytes(132))},
                                   ["decoder/decoder_norm/scale", "33"])):
                write_safetensors(f"{path}/bad.safetensors", **arrays)
                done = run("session", "put", name, f"{path}/bad.safetensors", *at)
                self.assertEqual((done.rc, done.out), (2, ""))
                for word in words:
                    self.assertIn(word, done.err)

    def test_training_leaves_no_session_behind(self):
        with folder(a_txt=TEXT) as path, support.daemon("--data-dir", path) as server:
            done = run("train", *SMALL, "--data", f"{path}/a.txt", "--batch", "1", "--length", "16", "--steps", "2",
                       "--server", server)
            self.assertEqual((done.rc, done.err), (0, ""))
            self.assertIn(f"in the daemon {server}", done.out)
            self.assertIn("no session", run("session", "list", "--server", server).err)


def tensors_of(path):
    raw = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    return {name: (about["dtype"], about["shape"], raw[8 + size:][slice(*about["data_offsets"])])
            for name, about in json.loads(raw[8:8 + size]).items() if name != "__metadata__"}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    support.OCTET = os.path.abspath(sys.argv[1])
    support.OCTETD = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] else None
    loader, suite = unittest.TestLoader(), unittest.TestSuite()
    for case in (Plot, WrongUse, BenchStep):
        suite.addTests(loader.loadTestsFromTestCase(case))
    if support.OCTETD:
        for case in (Training, Guide, Sessions):
            suite.addTests(loader.loadTestsFromTestCase(case))
    else:
        print("not run: Training, Guide, Sessions (octetd is not built)")
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
