#!/usr/bin/env python3
"""The command line from outside: what it prints, where, and its exit status.

What could break: a line on standard output that is not Qwix's, a wrong exit status in somebody's CI, output
that a CI system does not parse, a file that is half written, an error in terms that nobody typed.

usage: test_cli.py OCTET [OCTETD]
"""
import json
import os
import pathlib
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree as ElementTree

import support
from support import LINE, TINY, folder, run


def lines_of(text):
    """[(module, op, rule)] of a plain trace; every line must be one of Qwix's and nothing else."""
    found = []
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        if not match:
            raise AssertionError(f"not a line of Qwix: {line!r}")
        found.append(match.groups())
    return found


def trace_json(*arguments):
    done = run("trace", *arguments, "--json")
    assert done.rc == 0, done.err
    return json.loads(done.out)


def rule_text(rule):
    return "None" if rule < 0 else str(rule)


class Trace(unittest.TestCase):
    def test_prints_qwix_lines_and_nothing_else(self):
        done = run("trace", *TINY)
        self.assertEqual((done.rc, done.err), (0, ""))
        lines = lines_of(done.out)
        self.assertIn(("decoder/moe_layers/self_attention/wq_b", "dot_general0", "0"), lines)
        self.assertIn(("decoder/logits_dense", "dot_general0", "None"), lines)
        self.assertEqual(len(lines), len(set(lines)))

    def test_lines_are_the_looked_up_interceptions_in_order(self):
        interceptions = trace_json(*TINY)["trace"]["interceptions"]
        expected = [(i["module"], i["op"], rule_text(i["rule"])) for i in interceptions if i["looked_up"]]
        self.assertEqual(lines_of(run("trace", *TINY).out), expected)
        for i in interceptions:
            self.assertEqual(i["looked_up"], i["logged"] or (i["op"] == "gmm" and i["looked_up"]))

    def test_json_has_the_promised_members(self):
        answer = trace_json(*TINY)
        self.assertGreater(int(answer["parameters"]), 1000000)
        first = answer["trace"]["interceptions"][0]
        for member in ("module", "op", "rule", "kind", "lhs_shape", "rhs_shape", "out_shape", "flops",
                       "weight_bytes", "backend", "accumulation", "count", "logged"):
            self.assertIn(member, first)
        self.assertEqual((first["backend"], first["accumulation"]), ("cpu", "EXACT_ORDER"))
        self.assertNotIn("against", answer)

    def test_an_empty_listing_is_explained(self):
        done = run("trace", "llama2-7b")
        self.assertEqual((done.rc, done.out), (0, ""))
        self.assertIn("quantization", done.err)
        self.assertIn("--table", done.err)

    def test_table_has_a_row_for_every_matmul(self):
        interceptions = trace_json(*TINY)["trace"]["interceptions"]
        done = run("trace", *TINY, "--table")
        rows = done.out.splitlines()
        self.assertEqual(done.rc, 0)
        self.assertEqual(rows[0].split(), "MODULE OP RULE LHS RHS OUT COUNT FLOPS WEIGHTS".split())
        self.assertEqual(len(rows) - 1, len(interceptions))
        starts = [rows[0].index(title) for title in ("MODULE", "OP", "RULE", "LHS", "RHS", "OUT")]
        for row, i in zip(rows[1:], interceptions):
            cells = [row[a:b].strip() for a, b in zip(starts, starts[1:])]
            shape = "[" + ", ".join(i["lhs_shape"]) + "]"
            self.assertEqual(cells[:2] + cells[3:4], [i["module"], i["op"], shape])
            self.assertEqual(cells[2], "None" if i["rule"] < 0 else f"{i['rule']} float8_e4m3fn")

    def test_against_prints_exactly_what_differs(self):
        def rules(*more):
            return {(i["module"], i["op"]): i["rule"]
                    for i in trace_json(*TINY, *more)["trace"]["interceptions"]}
        here, there = rules(), rules("quantize_mtp=true")
        expected = [key for key in here if (here[key] < 0) != (there[key] < 0)]
        done = run("trace", *TINY, "--against", "quantize_mtp=true")
        rows = [row.split() for row in done.out.splitlines()]
        self.assertEqual(done.rc, 0)
        self.assertEqual(rows[0], ["MODULE", "OP", "HERE", "quantize_mtp=true"])
        self.assertEqual([(r[0], r[1]) for r in rows[1:]], expected)
        self.assertTrue(all(r[0].startswith("mtp_block/") for r in rows[1:]))
        self.assertTrue(all(r[2:] == ["None", "0", "float8_e4m3fn"] for r in rows[1:]))
        self.assertGreater(len(rows), 5)

    def test_against_takes_operands_up_to_the_next_option(self):
        a = run("trace", "--against", "quantize_mtp=true", "--batch", "2", *TINY[:0], "--seq", "64",
                "--", *TINY)
        b = run("trace", *TINY, "--against=quantize_mtp=true")
        self.assertEqual((a.rc, a.out), (0, b.out))

    def test_against_another_model(self):
        done = run("trace", "llama3-8b", "--against", "mistral-7b", "--json")
        self.assertEqual(done.rc, 0, done.err)
        answer = json.loads(done.out)
        self.assertEqual(answer["against"]["interceptions"][0]["lhs_shape"][-1], "4096")
        self.assertNotEqual(answer["parameters"], "0")

    def test_against_itself_says_so_on_standard_error(self):
        done = run("trace", *TINY, "--against", "scan_layers=true")
        self.assertEqual((done.rc, done.out, done.err), (0, "", "octet: no difference\n"))

    def test_coverage_is_the_json_s(self):
        coverage = trace_json(*TINY)["trace"]["coverage"]
        done = run("trace", *TINY, "--coverage")
        rows = done.out.splitlines()
        self.assertEqual(len(rows), 4 + len(coverage["by_block"]))
        share = 100 * int(coverage["flops_quantized"]) / int(coverage["flops_total"])
        weights = 100 * int(coverage["weight_bytes_quantized"]) / int(coverage["weight_bytes_total"])
        self.assertEqual(re.findall(r"[<>]?[\d.]+ %", rows[1]), [f"{share:.1f} %", f"{weights:.1f} %"])
        self.assertEqual([row.split()[0] for row in rows[2:-2]], [b["block"] for b in coverage["by_block"]])

    def test_batch_and_sequence(self):
        first = trace_json(*TINY, "--batch", "3", "--seq", "40")["trace"]["interceptions"][0]
        self.assertEqual(first["lhs_shape"][:2], ["3", "40"])

    def test_no_blanks_at_line_ends(self):
        for view in ("--table", "--coverage"):
            for line in run("trace", *TINY, view).out.splitlines():
                self.assertEqual(line, line.rstrip())


class Settings(unittest.TestCase):
    def dtype(self, *arguments, **env):
        done = run("inspect", "deepseek3-tiny", *arguments, "--json", env=env)
        self.assertEqual(done.rc, 0, done.err)
        return {p["dtype"] for p in json.loads(done.out)["parameters"]}

    def test_later_wins(self):
        f32, bf16, f16 = {"DATA_TYPE_F32"}, {"DATA_TYPE_BF16"}, {"DATA_TYPE_F16"}
        with folder(my_yml="weight_dtype: float16\n") as path:
            config = ["--config", f"{path}/my.yml"]
            self.assertEqual(self.dtype(), f32)
            self.assertEqual(self.dtype(*config), f16)
            self.assertEqual(self.dtype(*config, M_WEIGHT_DTYPE="bfloat16"), bf16)
            self.assertEqual(self.dtype(*config, "weight_dtype=float32", M_WEIGHT_DTYPE="bfloat16"), f32)
            self.assertEqual(self.dtype("weight_dtype=float16", "weight_dtype=bfloat16"), bf16)

    def test_config_may_name_the_model(self):
        with folder(my_yml="model_name: deepseek3-tiny\nquantization: fp8_full\n") as path:
            done = run("trace", "--config", f"{path}/my.yml")
        self.assertEqual(done.out, run("trace", "deepseek3-tiny", "quantization=fp8_full").out)
        self.assertEqual(run("trace", "model_name=deepseek3-tiny").out, run("trace", "deepseek3-tiny").out)

    def test_rules_take_the_place_of_the_config_s(self):
        rules = "rules:\n- module_path: 'decoder/.*wq_b'\n  weight_qtype: int8\n  act_qtype: int8\n"
        with folder(r_yml=rules) as path:
            done = run("trace", *TINY, "--rules", f"{path}/r.yml")
            table = run("trace", *TINY, "--rules", f"{path}/r.yml", "--table")
        taken = {module for module, _, rule in lines_of(done.out) if rule == "0"}
        self.assertEqual(taken, {"decoder/dense_layers/self_attention/wq_b",
                                 "decoder/moe_layers/self_attention/wq_b"})
        self.assertIn("0 int8", table.out)

    def test_unused_rules_are_told(self):
        with folder(r_yml="rules: [{module_path: 'decoder/.*layerz.*', weight_qtype: int8}]\n") as path:
            rules = ["--rules", f"{path}/r.yml"]
            plain, strict = run("trace", *TINY, *rules), run("trace", *TINY, *rules, "--strict")
            check = run("check", *TINY, *rules)
        self.assertEqual(plain.rc, 0)
        self.assertEqual(plain.err, "octet: warning: rule 0 (module_path 'decoder/.*layerz.*') matches no op\n")
        self.assertEqual((strict.rc, strict.out), (2, ""))
        self.assertIn("option --strict: 1 of 1 rules of 'model' match no op: rules[0]", strict.err)
        self.assertEqual(check.rc, 1)
        self.assertIn("unused-rule", check.out)


class WrongUse(unittest.TestCase):
    def check(self, arguments, *words, **kwargs):
        done = run(*arguments, **kwargs)
        self.assertEqual((done.rc, done.out), (2, ""), f"{arguments}: {done.err}")
        self.assertEqual(done.err.count("\n"), 1, done.err)
        self.assertTrue(done.err.startswith("octet"), done.err)
        for word in words:
            self.assertIn(word, done.err)

    def test_command_line(self):
        self.check(["trac"], "'trac'", "nearest is 'trace'")
        self.check(["trace"], "needs a MODEL")
        self.check(["verify", "log"], "'log' is taken as the LOG", "octet verify run.log")
        self.check(["check", "", "quantization=fp8"], "an operand is empty")
        self.check(["trace", "--quantization=fp8"], "without dashes: quantization=fp8")
        self.check(["verify"], "needs a LOG")
        self.check(["trace", "deepseek3-tiny", "--tabel"], "'--tabel'", "--table")
        self.check(["trace", "deepseek3-tiny", "-x"], "'-x'")
        self.check(["inspect", "deepseek3-tiny", "--lock", "x"], "'--lock'")
        self.check(["trace", "deepseek3-tiny", "llama3-8b"], "'llama3-8b' is not KEY=VALUE")
        self.check(["trace", "deepseek3-tiny", "=1"], "no key")
        self.check(["trace", "deepseek3-tiny", "--batch", "-1"], "--batch", "'-1'")
        self.check(["trace", "deepseek3-tiny", "--batch", "2x"], "--batch", "'2x'")
        self.check(["trace", "deepseek3-tiny", "--seq", "99999999999999999999"], "--seq")
        self.check(["trace", "deepseek3-tiny", "--seq"], "--seq needs a value")
        self.check(["trace", "deepseek3-tiny", "--json=yes"], "--json takes no value")
        self.check(["trace", "deepseek3-tiny", "--json", "--table"], "--json and --table exclude")
        self.check(["trace", "deepseek3-tiny", "--against"], "--against needs")
        self.check(["trace", "deepseek3-tiny", "--against", "a=1", "--table"], "--against and --table")
        self.check(["check", "deepseek3-tiny", "--format", "xml"], "--format", "'xml'", "junit")
        self.check(["info", "x"], "takes no operand")
        self.check(["help", "trac"], "'trac'", "'trace'")
        self.check(["completion", "fish"], "'fish'", "bash")

    def test_settings_in_the_user_s_terms(self):
        self.check(["trace", "deepseek3-tinny"], "'deepseek3-tinny'", "'deepseek3-tiny'")
        self.check(["trace", *TINY, "scan_layer=1"], "setting 'scan_layer'", "'scan_layers'")
        self.check(["trace", *TINY], "environment variable 'M_SCAN_LAYER'", env={"M_SCAN_LAYER": "1"})
        self.check(["trace", *TINY], "'M_MODEL_NAME' names 'gemma-2b', MODEL is 'deepseek3-tiny'",
                   env={"M_MODEL_NAME": "gemma-2b"})
        self.check(["trace", *TINY, "--against", ""], "an operand is empty")
        self.check(["trace", *TINY, "--server", ""], "option --server: its value is empty")
        self.check(["trace", *TINY, "--against", "scan_layer=1"],
                   "option --against: setting 'scan_layer'")
        self.check(["trace", "deepseek3-tiny", "quantize_mtp=true"], "quantize_mtp", "mtp_num_layers")
        self.check(["check", *TINY, "--require", "("], "option --require")
        with folder(my_yml="scan_layer: 1\n", bad_yml="a: [1\n", r_yml="rules: [{act_qtype: int99}]\n",
                    e_yml="rules: []\n") as path:
            self.check(["trace", *TINY, "--config", f"{path}/my.yml"], f"{path}/my.yml: ", "scan_layer")
            self.check(["trace", *TINY, "--config", f"{path}/bad.yml"], f"{path}/bad.yml: ")
            self.check(["trace", *TINY, "--rules", f"{path}/r.yml"], f"{path}/r.yml: ",
                       "field 'rules[0].act_qtype'", "int99")
            self.check(["trace", *TINY, "--rules", f"{path}/e.yml"], f"{path}/e.yml: ", "empty")

    def test_bytes_that_are_no_utf8_are_shown(self):
        done = subprocess.run([support.OCTET, "trace", "llama2-7b", b"--\xff"], capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn(rb"--\xff", done.stderr)

    def test_files(self):
        self.check(["trace", *TINY, "--config", "/no/such/file"], "'/no/such/file'", "No such file")
        self.check(["trace", *TINY, "--rules", "/"], "cannot read '/'")
        self.check(["verify", "/no/such/log", *TINY], "'/no/such/log'")
        with folder(nul_yml="a: \0\n", big_yml="#" * 2**21) as path:
            self.check(["trace", *TINY, "--config", f"{path}/nul.yml"], "byte 3 is NUL")
            self.check(["trace", *TINY, "--config", f"{path}/big.yml"], "larger than 1048576 bytes")

    def test_bytes_that_are_no_text(self):
        process = subprocess.run([support.OCTET, "trace", b"deepseek3-\xff"], capture_output=True,
                                 env=support.environment())
        self.assertEqual(process.returncode, 2)
        self.assertIn(b"octet: MODEL: ", process.stderr)
        self.assertIn(b"UTF-8", process.stderr)

    def test_errors_do_not_steer_the_terminal(self):
        done = run("trace", "deepseek3-tiny", "a\x1b[31m=1")
        self.assertEqual(done.rc, 2)
        self.assertNotIn("\x1b", done.err)


class Check(unittest.TestCase):
    SOUND = ["llama3-8b", "quantization=fp8_full", "scan_layers=true"]

    def test_status_and_summary(self):
        done = run("check", *self.SOUND)
        self.assertEqual(done.rc, 0, done.out + done.err)
        self.assertRegex(done.out, r"\d+ lines traced, [\d.]+ % of the work and [\d.]+ % of the weights")

    def test_require_and_forbid(self):
        good = run("check", *self.SOUND, "--require", ".*mlp/wo", "--forbid", "decoder/logits_dense")
        self.assertEqual(good.rc, 0, good.out)
        unquantized = run("check", *self.SOUND, "--require", "decoder/logits_dense")
        self.assertEqual(unquantized.rc, 1)
        self.assertIn("decoder/logits_dense", unquantized.out)
        forbidden = run("check", *self.SOUND, "--require", ".*mlp/wo", "--forbid", ".*query", "--forbid", ".*key")
        self.assertEqual(forbidden.rc, 1)
        self.assertIn("query", forbidden.out)
        self.assertIn("key", forbidden.out)
        nothing = run("check", *self.SOUND, "--require", "no/such/module")
        self.assertEqual(nothing.rc, 1)

    def test_groups_by_severity_with_a_way_out(self):
        done = run("check", *TINY, "--require", "decoder/logits_dense")
        self.assertEqual(done.rc, 1)
        headings = [l for l in done.out.splitlines() if l in ("errors", "warnings", "notes")]
        self.assertEqual(headings, [h for h in ("errors", "warnings", "notes") if h in headings])
        self.assertIn("errors", headings)
        self.assertIn("way out:", done.out)

    def test_strict_makes_warnings_fail(self):
        warned = ["deepseek3-671b", "quantization=fp8_full", "mtp_num_layers=1"]
        plain, strict = run("check", *warned), run("check", *warned, "--strict")
        self.assertIn("mtp-left-out", plain.out)
        self.assertEqual((plain.rc, strict.rc), (0, 1))

    def test_a_config_without_a_plan_is_a_finding(self):
        done = run("check", "deepseek3-tiny", "quantize_mtp=true")
        self.assertEqual(done.rc, 1, done.err)
        self.assertIn("mtp_num_layers", done.out)

    HOSTILE = "logits_dense|a%b:c,d\n\r::error::]]>&<\"'\x01\ufffe"

    def test_github_is_one_escaped_line_a_finding(self):
        done = run("check", *self.SOUND, "--require", self.HOSTILE, "--format", "github")
        self.assertEqual(done.rc, 1)
        for line in done.out.splitlines():
            self.assertRegex(line, r"^::(error|warning|notice) title=[^:,\r]*::\S")
        errors = [l for l in done.out.split("\n") if l.startswith("::error")]
        self.assertEqual(len(errors), 1)
        self.assertIn("a%25b:c,d%0A%0D::error::", errors[0])
        self.assertNotIn("\r", done.out)
        self.assertRegex(done.out.splitlines()[-1], r"^::notice title=octet check::\d+ lines traced, [\d.]+ %25 of")

    def test_junit_parses_and_counts(self):
        done = run("check", *self.SOUND, "--require", self.HOSTILE, "--format", "junit")
        self.assertEqual(done.rc, 1)
        root = ElementTree.fromstring(done.out)
        suite = root.find("testsuite")
        cases, failures = suite.findall("testcase"), suite.findall("testcase/failure")
        self.assertEqual((root.tag, len(cases)), ("testsuites", int(suite.get("tests"))))
        self.assertEqual(int(root.get("failures")), len(failures))
        self.assertEqual(len(failures), 1)
        self.assertIn("a%b:c,d", failures[0].get("message"))
        self.assertTrue(all(case.get("name") for case in cases))
        fine = ElementTree.fromstring(run("check", *self.SOUND, "--format", "junit").out)
        self.assertEqual(fine.get("failures"), "0")
        self.assertGreaterEqual(int(fine.get("tests")), 1)

    def test_json(self):
        done = run("check", *TINY, "--require", "decoder/logits_dense", "--format", "json")
        self.assertEqual(done.rc, 1)
        self.assertIn("SEVERITY_ERROR", {f["severity"] for f in json.loads(done.out)["findings"]})


class Lock(unittest.TestCase):
    MODEL = Check.SOUND

    def test_life_of_a_lock(self):
        with folder() as path:
            lock = f"{path}/octet.lock"
            first = run("check", *self.MODEL, "--lock", lock)
            self.assertEqual(first.rc, 0, first.out + first.err)
            self.assertIn("locked in", first.out)
            text = pathlib.Path(lock).read_text()
            self.assertTrue(text.startswith("# octet trace lock 1\n# config: llama3-8b quantization=fp8_full"))
            plain = [l for l in text.splitlines() if l.startswith("[QWIX]")]
            self.assertEqual(plain, run("trace", *self.MODEL).out.splitlines())
            again = run("check", *self.MODEL, "--lock", lock)
            self.assertEqual(again.rc, 0)
            self.assertIn("the same as in", again.out)
            other = run("check", "llama3-8b", "scan_layers=true", "quantization=int8", "--lock", lock)
            self.assertEqual(other.rc, 1)
            self.assertIn("lock-differs", other.out)
            self.assertIn("- rule 0: module_path=", other.out)
            self.assertIn("+ rule 0: module_path=", other.out)
            self.assertIn(f"delete '{lock}'", other.out)
            self.assertEqual(pathlib.Path(lock).read_text(), text)
            self.assertEqual(os.listdir(path), ["octet.lock"])

    def test_differences_are_lines(self):
        with folder() as path:
            lock = f"{path}/l"
            run("check", *self.MODEL, "--lock", lock)
            lines = pathlib.Path(lock).read_text().splitlines()
            at = next(i for i, l in enumerate(lines) if "mlp/wi_0' op=dot_general0 rule=0" in l)
            changed, gone = lines[at], lines[at + 1]
            lines[at] = changed.replace("rule=0", "rule=None")
            lines[at + 1] = "[QWIX] module='decoder/old' op=dot_general0 rule=0"
            pathlib.Path(lock).write_text("\r\n".join(lines) + "\r\n")
            done = run("check", *self.MODEL, "--lock", lock)
            self.assertEqual(done.rc, 1)
            marked = [l.strip() for l in done.out.splitlines() if l.strip()[:2] in ("- ", "+ ")]
            self.assertEqual(sorted(marked), sorted(
                [f"- {lines[at]}", f"+ {changed}", f"+ {gone}", f"- {lines[at + 1]}"]))
            junit = run("check", *self.MODEL, "--lock", lock, "--format", "junit")
            self.assertEqual(ElementTree.fromstring(junit.out).get("failures"), "1")

    def test_other_order_is_a_difference(self):
        with folder() as path:
            lock = f"{path}/l"
            run("check", *self.MODEL, "--lock", lock)
            lines = pathlib.Path(lock).read_text().splitlines()
            pathlib.Path(lock).write_text("\n".join(lines[:-2] + [lines[-1], lines[-2]]))
            done = run("check", *self.MODEL, "--lock", lock)
            self.assertEqual(done.rc, 1)
            self.assertIn("another order", done.out)

    def test_errors_are_not_locked(self):
        with folder() as path:
            done = run("check", *self.MODEL, "--require", "no/such", "--lock", f"{path}/l")
            self.assertEqual((done.rc, os.listdir(path)), (1, []))

    def test_wrong_files(self):
        with folder(a_txt="hello\n", b_txt="# octet trace lock 1\nhello\n") as path:
            for name, words in (("a.txt", "not a lock file"), ("b.txt", "line 2 is neither")):
                done = run("check", *self.MODEL, "--lock", f"{path}/{name}")
                self.assertEqual(done.rc, 2)
                self.assertIn(words, done.err)
        done = run("check", *self.MODEL, "--lock", "/no/such/folder/l")
        self.assertEqual(done.rc, 2)
        self.assertIn("cannot write '/no/such/folder/l'", done.err)


class Verify(unittest.TestCase):
    MODEL = ["deepseek3-tiny", "quantization=fp8_full"]

    def setUp(self):
        answer = trace_json(*self.MODEL)["trace"]["interceptions"]
        self.lines = [f"[QWIX] module='{i['module']}' op={i['op']} rule={rule_text(i['rule'])}"
                      for i in answer if i["logged"]]

    def verify(self, lines, *options, model=None):
        with folder(run_log="\n".join(lines) + "\n") as path:
            return run("verify", f"{path}/run.log", *(model or self.MODEL), *options)

    def test_a_log_as_runs_write_it(self):
        log = ["Starting", "I1130 12:00:00.123 pyconfig.py:1] Config param x: 1"]
        for i, line in enumerate(self.lines):
            log.append(f"D1130 12:00:00.{i:06} 140 _provider.py:99] {line}")
            if i % 3 == 0:
                log.append("completed step: 0, seconds: 1.0")
            if i % 4 == 0:
                log.append(f"2026-11-30 host1 {line}  ")
        done = self.verify(log)
        self.assertEqual(done.rc, 0, done.out)
        counts = (f"{len(self.lines)} lines agree, 0 missing in the log, 0 extra in it, 0 with another rule\n"
                  f"log: {len(log)} lines, {len(self.lines) + (len(self.lines) + 3) // 4} of them Qwix's, "
                  f"{(len(self.lines) + 3) // 4} of those repeated\n")
        self.assertEqual(done.out, counts + (
            "not compared: 1 gmm line of the trace, which Qwix does not log; and what a rule does "
            "(types, calibration): the log has its number only\n"))

    def test_a_fused_kernel_is_recognized(self):
        log = [line for line in self.lines if "/attention_op' " not in line]
        done = self.verify(log)
        self.assertEqual(done.rc, 1)
        self.assertIn("hint: only attention_op lines are missing", done.out)
        self.assertEqual(self.verify(log, "attention=flash").rc, 0)
        self.assertEqual(self.verify(log, "attention=autoselected", "hardware=tpu", "--seq", "128").rc, 0)
        self.assertEqual(self.verify(log, "attention=autoselected", "hardware=cpu").rc, 1)
        self.assertNotIn("hint", self.verify(log[1:]).out)

    def test_every_kind_of_difference(self):
        at = next(i for i, l in enumerate(self.lines) if l.endswith("rule=0"))
        log = list(self.lines)
        log[at] = log[at].replace("rule=0", "rule=None")
        gone = log.pop(at + 1)
        extra = "[QWIX] module='decoder/new' op=dot_general3 rule=7"
        done = self.verify([extra] + log)
        self.assertEqual(done.rc, 1)
        self.assertEqual(done.out.splitlines()[:3], [
            f"different  {self.lines[at]}, but the log has rule=None", f"missing    {gone}", f"extra      {extra}"])
        self.assertIn(f"{len(self.lines) - 2} lines agree, 1 missing in the log, 1 extra in it, "
                      "1 with another rule", done.out)

    def test_a_line_with_two_rules(self):
        at = next(i for i, l in enumerate(self.lines) if l.endswith("rule=0"))
        done = self.verify(self.lines + [self.lines[at].replace("rule=0", "rule=1")])
        self.assertEqual(done.rc, 1)
        self.assertIn(f"different  {self.lines[at]}, but the log has rule=1", done.out)

    def test_order_counts_when_strict(self):
        log = self.lines[1:] + self.lines[:1]
        self.assertEqual([self.verify(log).rc, self.verify(log, "--strict").rc], [0, 1])
        self.assertIn("order      [QWIX]", self.verify(log).out)
        self.assertEqual(self.verify(self.lines, "--strict").rc, 0)

    def test_another_model(self):
        self.assertEqual(self.verify(self.lines, model=["llama3-8b"]).rc, 1)

    def test_gmm_lines_are_compared_where_the_log_has_them(self):
        whole = run("trace", *self.MODEL).out.splitlines()
        self.assertGreater(len(whole), len(self.lines))
        done = self.verify(whole)
        self.assertEqual(done.rc, 0, done.out)
        self.assertIn(f"{len(whole)} lines agree", done.out)

    def test_standard_input(self):
        done = run("verify", "-", *self.MODEL, text="\n".join(self.lines))
        self.assertEqual(done.rc, 0, done.out + done.err)

    def test_interrupt_while_the_log_is_read(self):
        process = subprocess.Popen([support.OCTET, "verify", "-", *self.MODEL], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=support.environment())
        process.stdin.write(self.lines[0] + "\n")
        process.stdin.flush()
        interrupt(process)
        self.assertEqual(process.wait(15), 130)
        self.assertEqual(process.stderr.read(), "octet: interrupted\n")
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()

    def test_a_line_without_end(self):
        done = run("verify", "/dev/zero", *TINY, timeout=20)
        self.assertEqual(done.rc, 2)
        self.assertIn("1048576 bytes", done.err)

    def test_a_log_without_qwix(self):
        done = self.verify(["hello", "[QWIX] module='cut", "[QWIX] module='x' op=y rule=z"])
        self.assertEqual((done.rc, done.out), (2, ""))
        self.assertIn("no line of Qwix among 3", done.err)


class Inspect(unittest.TestCase):
    def test_totals_are_sums(self):
        answer = json.loads(run("inspect", "deepseek3-tiny", "--json").out)
        count = size = 0
        for parameter in answer["parameters"]:
            elements = 1
            for d in parameter["shape"]:
                elements *= int(d)
            self.assertEqual(int(parameter["bytes"]), 4 * elements, parameter["name"])
            count, size = count + elements, size + int(parameter["bytes"])
        self.assertEqual((int(answer["parameter_count"]), int(answer["parameter_bytes"])), (count, size))
        rows = run("inspect", "deepseek3-tiny").out.splitlines()
        self.assertEqual(rows[0].split(), "PARAMETER DTYPE SHAPE COUNT BYTES".split())
        self.assertEqual([r.split()[0] for r in rows[1:-1]], sorted(p["name"] for p in answer["parameters"]))
        self.assertIn(f"{count:,}", rows[-1])

    def test_memory_of_a_step(self):
        def memory(*settings):
            answer = json.loads(run("plan", "deepseek3-tiny", *settings, "--json").out)
            return [int(answer[f"{name}_bytes"]) for name in ("parameter", "gradient", "optimizer")]
        parameters, gradients, optimizer = memory()
        self.assertEqual((gradients, optimizer), (parameters, 2 * parameters))
        self.assertEqual(memory("mu_dtype=bfloat16")[2], parameters + parameters // 2)
        self.assertEqual(memory("grad_dtype=bfloat16")[1], parameters // 2)
        self.assertEqual(memory("opt_type=sgd")[2], 0)
        self.assertEqual(memory("weight_dtype=bfloat16")[0], parameters // 2)

    def test_plan_prints_the_sums(self):
        answer = json.loads(run("plan", "deepseek3-tiny", "--json").out)
        done = run("plan", "deepseek3-tiny", "--batch", "2", "--seq", "32")
        self.assertEqual(done.rc, 0)
        self.assertIn("training step of 2 x 32 tokens", done.out)
        self.assertIn(f"{int(answer['parameter_count']):,} values", done.out)
        names = [row.split("  ")[0] for row in done.out.splitlines()]
        for name in ("parameters", "gradients", "optimizer", "activations", "peak", "forward", "backward", "step"):
            self.assertIn(name, names)
        self.assertLess(names.index("peak"), names.index("forward"))

    def test_plan_of_inference_has_no_gradients(self):
        done = run("plan", "deepseek3-tiny", "--infer", "--batch", "1", "--length", "32")
        self.assertEqual(done.rc, 0)
        self.assertIn("forward pass of 1 x 32 tokens", done.out)
        names = [row.split("  ")[0] for row in done.out.splitlines()]
        for name in ("gradients", "optimizer", "backward", "step"):
            self.assertNotIn(name, names)

    def test_plan_lists_the_parts(self):
        done = run("plan", *TINY, "quantize_mtp=true")
        parts = {row.split()[0]: row.split() for row in done.out.splitlines() if "/" in row.split("  ")[0]}
        self.assertIn("mtp_block/mtp_layer_1", parts)
        self.assertNotIn("0.0", parts["mtp_block/mtp_layer_1"])
        self.assertIn("0.0", parts["decoder/logits_dense"])


class Figures(unittest.TestCase):
    def test_what_does_not_fit_is_marked(self):
        big = ["llama2-7b", "quantization=fp8_full", "--batch", "16777216"]
        total = run("trace", *big, "--coverage").out.splitlines()[1].split()
        self.assertEqual(total[:2], ["total", "?"])
        self.assertIn(">9.22", total)
        self.assertIn(">9.22 E", run("plan", *big).out)


class Help(unittest.TestCase):
    COMMANDS = ["trace", "check", "verify", "inspect", "plan", "info", "completion", "help"]

    def test_overview(self):
        for arguments in ([], ["help"], ["--help"], ["-h"]):
            done = run(*arguments)
            self.assertEqual((done.rc, done.err), (0, ""))
            for command in self.COMMANDS:
                self.assertRegex(done.out, rf"(?m)^  {command} ")

    def test_every_command(self):
        for command in self.COMMANDS:
            help_of, option = run("help", command), run(command, "--help")
            self.assertEqual((help_of.rc, help_of.out), (0, option.out))
            self.assertTrue(help_of.out.startswith(f"usage: octet {command}"))
            self.assertLessEqual(max(map(len, help_of.out.splitlines())), 110)

    def test_reference_is_up_to_date(self):
        reference = pathlib.Path(__file__).resolve().parents[2] / "docs" / "commands.md"
        self.assertEqual(run("help", "--markdown").out, reference.read_text(),
                         "octet help --markdown > docs/commands.md")

    def test_version(self):
        for arguments in (["--version"], ["-V"], ["help", "--version"]):
            self.assertRegex(run(*arguments).out, r"^octet \d+\.\d+\.\d+ \(\w+\)\n$")

    def test_info(self):
        info = json.loads(run("info", "--json").out)
        self.assertEqual(len(info["models"]), 54)
        self.assertIn("deepseek3-671b", run("info").out)

    def test_completion_completes(self):
        script = run("completion", "bash").out + """
COMP_WORDS=(octet "$@"); COMP_CWORD=$#; _octet; echo "${COMPREPLY[@]}"
"""
        def complete(*words):
            return subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True,
                                  check=True).stdout.split()
        self.assertEqual(complete("tra"), ["trace", "train"])
        self.assertEqual(complete("session", "s"), ["show", "save"])
        self.assertEqual(complete("train", "deepseek3-t"), ["deepseek3-test", "deepseek3-tiny"])
        self.assertEqual(complete("trace", "deepseek3-t"), ["deepseek3-test", "deepseek3-tiny"])
        self.assertEqual(complete("check", "--fo"), ["--forbid", "--format"])
        self.assertEqual(complete("inspect", "--fo"), [])
        self.assertEqual(complete("dot", "deepseek3-t"), [], "operands are files, which bash completes itself")
        self.assertEqual(complete("dot", "--weight-"), ["--weight-qtype", "--weight-method"])
        self.assertEqual(complete("bench", "g"), ["gemm", "gemv", "gmm"])
        self.assertEqual(complete("help", "quan"), ["quantize"])


def interrupt(process):
    """SIGINT, once the program has its handler (and has had time to get to its wait)."""
    for _ in range(600):
        with open(f"/proc/{process.pid}/status") as status:
            caught = int(re.search(r"^SigCgt:\s*([0-9a-f]+)", status.read(), re.M)[1], 16)
        if caught >> (signal.SIGINT - 1) & 1:
            break
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)


class Streams(unittest.TestCase):
    def test_reader_that_leaves(self):
        """Like `octet ... | head -1`: no message, with SIGPIPE at work (Python ignores it) and without."""
        for restore in (True, False):
            process = subprocess.Popen([support.OCTET, "trace", "deepseek3-671b", "scan_layers=false", "--json"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env=support.environment(), restore_signals=restore)
            process.stdout.read(10)
            process.stdout.close()
            error = process.stderr.read()
            process.stderr.close()
            self.assertEqual(process.wait(60), -signal.SIGPIPE if restore else 128 + signal.SIGPIPE)
            self.assertEqual(error, b"")

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            process = subprocess.run([support.OCTET, "trace", *TINY], stdout=full, stderr=subprocess.PIPE,
                                     text=True, env=support.environment())
        self.assertEqual(process.returncode, 2)
        self.assertIn("cannot write to standard output: No space left", process.stderr)

    def test_closed_standard_output(self):
        """The lock file must not get descriptor 1 and the findings with it."""
        with folder() as path:
            process = subprocess.run(
                ["bash", "-c", '"$0" check llama3-8b quantization=fp8_full --lock "$1" >&-', support.OCTET,
                 f"{path}/l"], capture_output=True, text=True, env=support.environment())
            self.assertEqual(process.returncode, 2)
            self.assertIn("cannot write to standard output", process.stderr)
            self.assertTrue(pathlib.Path(path, "l").read_text().startswith("# octet trace lock 1\n"))

    def terminal(self, *arguments, **env):
        master, slave = pty.openpty()
        process = subprocess.Popen([support.OCTET, *arguments], stdout=slave, stderr=slave,
                                   env=support.environment(**env))
        os.close(slave)
        output = b""
        try:
            while piece := os.read(master, 65536):
                output += piece
        except OSError:  # the other end is gone
            pass
        os.close(master)
        process.wait(60)
        return output

    def test_colour_on_terminals_only(self):
        table = ["trace", *TINY, "--table"]
        self.assertIn(b"\x1b[", self.terminal(*table, TERM="xterm"))
        self.assertNotIn(b"\x1b", self.terminal(*table, TERM="xterm", NO_COLOR="1"))
        self.assertNotIn(b"\x1b", self.terminal(*table, TERM="dumb"))
        self.assertNotIn("\x1b", run(*table, env={"TERM": "xterm"}).out)
        self.assertNotIn(b"\x1b", self.terminal("trace", *TINY, TERM="xterm"))

    def test_local_commands_load_no_grpc(self):
        for command in (["trace", *TINY], ["check", *TINY], ["info"]):
            done = run(*command, env={"LD_DEBUG": "files"})
            self.assertIn("libc.so", done.err)
            self.assertNotRegex(done.err, "grpc|openblas|octet_client")


class NoMemory(unittest.TestCase):
    def test_every_allocation_may_fail(self):
        """Each of the first allocations, then some in between: an error in words, never a crash."""
        commands = [["trace", *TINY], ["trace", *TINY, "--against", "quantize_mtp=true"],
                    ["check", *TINY], ["inspect", "deepseek3-tiny"]]
        for command in commands:
            n, failed = 1, 0
            while True:
                done = run(*command, env={"OCTET_FAIL_ALLOC": str(n)})
                self.assertIn(done.rc, (0, 1, 2), f"{command} at {n}: {done.err}")
                if done.rc == 2:
                    self.assertIn("memory", done.err)
                    failed += 1
                elif n > 10000 or "memory" not in done.out + done.err:
                    break
                n = n + 1 if n < 40 else n * 9 // 8
            self.assertGreater(failed, 40, command)


class Remote(unittest.TestCase):
    def test_nobody_there(self):
        server = f"127.0.0.1:{support.free_port()}"
        done = run("trace", *TINY, "--server", server)
        self.assertEqual((done.rc, done.out), (2, ""))
        self.assertIn(server, done.err)
        self.assertEqual(done.err.count("\n"), 1, "gRPC's own log stays quiet")

    def test_options_of_the_client(self):
        for env, words in (({"OCTET_SERVER": "nonsense"}, "'nonsense' is not HOST:PORT"),
                           ({"OCTET_SERVER": "h:99999"}, "port from 1 to 65535"),
                           ({"OCTET_SERVER": "example.org:1", "OCTET_TOKEN": "x"}, "clear text"),
                           ({"OCTET_SERVER": "127.0.0.1:1", "OCTET_TOKEN": "a\nb"}, "OCTET_TOKEN"),
                           ({"OCTET_SERVER": "127.0.0.1:1", "OCTET_TLS_CA": "/no/ca"}, "OCTET_TLS_CA"),
                           ({"OCTET_SERVER": "127.0.0.1:1", "OCTET_TLS_CERT": "/x"}, "OCTET_TLS_CA"),
                           ({"OCTET_SERVER": "127.0.0.1:1", "OCTET_TLS_CA": "/etc/passwd"}, "not a PEM")):
            done = run("info", env=env)
            self.assertEqual(done.rc, 2)
            self.assertIn(words, done.err)
        self.assertEqual(run("info", "--local", env={"OCTET_SERVER": "nonsense"}).rc, 0)

    def hang(self, *arguments):
        """A call to a server that accepts and never answers."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        return subprocess.Popen([support.OCTET, *arguments, "--server",
                                 f"127.0.0.1:{listener.getsockname()[1]}"], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=support.environment())

    def test_timeout(self):
        start = time.monotonic()
        process = self.hang("info", "--timeout", "1")
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 2)
        self.assertIn("did not answer in time", err)
        self.assertLess(time.monotonic() - start, 15)

    def test_interrupt(self):
        process = self.hang("info")
        interrupt(process)
        _, err = process.communicate(timeout=15)
        self.assertEqual((process.returncode, err), (130, "octet: interrupted\n"))


class RemoteIsLocal(unittest.TestCase):
    """One code path: with a daemon, the same bytes come out."""

    def test_same_answers(self):
        with folder(r_yml="rules: [{module_path: '.*wq_b', weight_qtype: int8, act_qtype: int8}]\n",
                    c_yml="weight_dtype: bfloat16\n") as path, support.daemon() as server:
            rules, config = ["--rules", f"{path}/r.yml"], ["--config", f"{path}/c.yml"]
            commands = [
                ["trace", *TINY], ["trace", *TINY, "--json"], ["trace", *TINY, "--table", *rules],
                ["trace", *TINY, "--coverage", *config], ["trace", *TINY, "--against", "quantize_mtp=true"],
                ["trace", "deepseek3-671b", "scan_layers=false"],
                ["check", *TINY, "--require", "decoder/logits_dense"], ["check", *TINY, "--format", "junit"],
                ["inspect", *TINY], ["plan", *TINY, *config],
                ["trace", "deepseek3-tinny"], ["trace", *TINY, "scan_layer=1"],
                ["trace", *TINY, "--against", "scan_layer=1"], ["trace", *TINY, "--strict", *rules],
                ["check", *TINY, "--require", "("], ["trace", *TINY, "--batch", "9223372036854775807"],
            ]
            for command in commands:
                here, there = run(*command), run(*command, "--server", server)
                self.assertEqual((there.rc, there.out, there.err), (here.rc, here.out, here.err), command)
            there = run("trace", *TINY, env={"OCTET_SERVER": server, "M_SCAN_LAYER": "1"})
            self.assertIn("environment variable 'M_SCAN_LAYER'", there.err)
            info = run("info", "--server", server, "--json")
            self.assertGreater(int(json.loads(info.out)["limits"]["max_message_bytes"]), 0)
            self.assertIn(server, run("info", "--server", server).out)

    def test_limit_of_requests(self):
        """The error names both numbers and the setting, and the bytes never travel."""
        with folder(big_yml="# " + "x" * 1000000 + "\n", d_yml="limits: {max_message_bytes: 1500000, config_request_bytes: 1500000}\n") as path, \
                support.daemon("--config", f"{path}/d.yml") as server:
            done = run("trace", *TINY, "--config", f"{path}/big.yml", "--against", "dtype=float32",
                       "--server", server)
        self.assertEqual((done.rc, done.out), (2, ""))
        self.assertRegex(done.err, r"the request has 200\d{4} bytes, 127\.0\.0\.1:\d+ accepts 1500000 "
                                   r"\(its setting limits\.max_message_bytes\)")

    def test_token_and_mutual_tls(self):
        tls = pathlib.Path(__file__).resolve().parents[1] / "server" / "tls"
        config = (f"tls: {{certificate: {tls}/server.pem, key: {tls}/server.key, client_ca: {tls}/ca.pem}}\n"
                  "auth: {token_file: TOKEN}\n")
        with folder(token_txt="open-sesame-open\nanother-token-of-length\n") as path:
            os.chmod(f"{path}/token.txt", 0o600)
            pathlib.Path(path, "d.yml").write_text(config.replace("TOKEN", f"{path}/token.txt"))
            with support.daemon("--config", f"{path}/d.yml") as server:
                secrets = {"OCTET_SERVER": server, "OCTET_TOKEN": "open-sesame-open", "OCTET_TLS_CA": f"{tls}/ca.pem",
                           "OCTET_TLS_CERT": f"{tls}/client.pem", "OCTET_TLS_KEY": f"{tls}/client.key"}
                here, there = run("trace", *TINY), run("trace", *TINY, env=secrets)
                self.assertEqual((there.rc, there.out), (0, here.out), there.err)
                wrong = run("info", env={**secrets, "OCTET_TOKEN": "simsalabim"})
                self.assertEqual((wrong.rc, wrong.out), (2, ""))
                self.assertIn("token", wrong.err)
                for missing in ({"OCTET_TLS_CERT": f"{tls}/stranger.pem", "OCTET_TLS_KEY": f"{tls}/stranger.key"},
                                {"OCTET_TLS_CERT": "", "OCTET_TLS_KEY": ""},
                                {"OCTET_TLS_CA": "", "OCTET_TLS_CERT": "", "OCTET_TLS_KEY": ""}):
                    done = run("info", "--timeout", "10", env={**secrets, **missing})
                    self.assertEqual((done.rc, done.out), (2, ""), missing)
                    self.assertEqual(done.err.count("\n"), 1, done.err)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    support.OCTET = os.path.abspath(sys.argv[1])
    support.OCTETD = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] else None
    loader, suite = unittest.TestLoader(), unittest.TestSuite()
    for case in (Trace, Settings, WrongUse, Check, Lock, Verify, Inspect, Help, Streams, NoMemory, Remote):
        suite.addTests(loader.loadTestsFromTestCase(case))
    if support.OCTETD:
        suite.addTests(loader.loadTestsFromTestCase(RemoteIsLocal))
    else:
        print("not run: RemoteIsLocal (octetd is not built)")
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
