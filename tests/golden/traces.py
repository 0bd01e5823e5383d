#!/usr/bin/env python3
"""`octet trace`, `octet inspect` and `octet check` against the real MaxText and Qwix, byte for byte.

What could break: a module's name, the order of calls, an op's number, a rule, a shape, a count; it shows
as a diff of the first line that differs. Reference traces come from archives in tests/golden/data (see
README.md there) and, where OCTET_GOLDEN or ../shared/golden is present, from the full folder too.

usage: traces.py [--every=N] OCTET [NAME-PATTERN]     --every=5: one in five checks
"""
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
FLAVOUR = {"linen": ["enable_nnx=false", "pure_nnx=false", "pure_nnx_decoder=false"]}


def text_of(value):
    """A config value as it is written on a command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(text_of(v) for v in value) + "]"
    return str(value)


# Flavours that MaxText itself crashes on or refuses (golden/maxtext/traces/FAILED.json).
BROKEN_FLAVOURS = {
    "nnx-over-linen-decoder-mtp": dict(pure_nnx=False, pure_nnx_decoder=False, mtp_num_layers=1),
    "linen-model-nnx-decoder": dict(pure_nnx=False, pure_nnx_decoder=True),
    "nnx-model-linen-decoder": dict(pure_nnx=True, pure_nnx_decoder=False),
    "linen-mtp": dict(enable_nnx=False, pure_nnx=False, pure_nnx_decoder=False, mtp_num_layers=1,
                      quantize_mtp=True),
}


# What MaxText's forward pass takes and Octet refuses on purpose: (config key, is it so?, why).
KNOWN_BLOCKS = {"default", "llama2", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma",
                "gemma2", "gemma3", "gpt_oss", "olmo3", "deepseek"}
ON_PURPOSE = [
    ("decoder_block", lambda c: c.get("decoder_block", "llama2") not in KNOWN_BLOCKS, "unknown layer"),
    ("engram_layers", lambda c: c.get("engram_layers", c["model_name"] == "deepseek-custom"
                                      if "model_name" in c else False), "unknown layer"),
    ("use_multimodal", lambda c: c.get("use_multimodal"), "unknown layer"),
    ("use_audio", lambda c: c.get("use_audio"), "unknown layer"),
    ("quantization", lambda c: str(c.get("quantization")) in ("nanoo_fp8", "intmp")
     or str(c.get("quantization")).startswith("te_"), "not Qwix's"),
    ("use_qwix_quantization",
     lambda c: not c.get("use_qwix_quantization", True) and c.get("quantization"), "not Qwix's"),
    ("calibration_method", lambda c: any(c.get(f"{side}_quantization_calibration_method", "absmax").split(",")[0]
                                         in ("bogus", "minmax") or
                                         c.get(f"{side}_quantization_calibration_method") in ("fixed", "fixed,-1,2")
                                         for side in ("weight", "act", "bwd")),
     "fails in the backward pass, which a forward trace does not reach"),
]


class Case:
    def __init__(self, name, lines, detail, parameters):
        self.name, self.lines, self.detail, self.parameters = name, lines, detail, parameters
        self.config = detail.get("config", {})
        self.linen = detail.get("flavour") == "linen"

    def key(self, kind):
        return kind, self.name, json.dumps([self.lines, self.detail, self.parameters], sort_keys=True)

    def arguments(self):
        config = dict(self.config)
        model = config.pop("model_name", "default")
        config.setdefault("max_target_length", 128)
        batch = config.pop("per_device_batch_size", 1)
        settings = [f"{k}={text_of(v)}" for k, v in config.items()]
        if self.linen:
            settings += FLAVOUR["linen"]
        return [model, *settings, "--batch", str(int(batch))]


def run(octet, command, case, *more):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("M_")}
    return subprocess.run([octet, command, *case.arguments(), *more], capture_output=True, text=True,
                          env=environment, timeout=120)


def check_lines(octet, case):
    done = run(octet, "trace", case)
    if done.returncode != 0:
        return f"exit {done.returncode}: {done.stderr.strip()}"
    ours, theirs = done.stdout.splitlines(), case.lines
    for number, (a, b) in enumerate(zip(ours, theirs), 1):
        if a != b:
            return f"line {number}:\n    octet   {a}\n    maxtext {b}"
    if len(ours) != len(theirs):
        longer = ours if len(ours) > len(theirs) else theirs
        return (f"{len(ours)} lines, MaxText has {len(theirs)}; first line too "
                f"{'many' if longer is ours else 'few'}: {longer[min(len(ours), len(theirs))]}")
    return None


def padded(shape, case):
    """MaxText pads the rows of a grouped matmul to whole tiles; Octet multiplies only what is there."""
    tile = case.config.get("wi_tile_fwd_batch_seq", 512)
    return [-(-shape[0] // tile) * tile, *shape[1:]]


def check_shapes(octet, case):
    """Operand shapes, equations and counts of every line."""
    if not case.detail.get("lines"):
        return None
    done = run(octet, "trace", case, "--json")
    if done.returncode != 0:
        return f"exit {done.returncode}: {done.stderr.strip()}"
    ours = [i for i in json.loads(done.stdout)["trace"]["interceptions"] if i["looked_up"]]
    for mine, theirs in zip(ours, case.detail["lines"]):
        where = f"{theirs['module']} {theirs['op']}"
        if theirs.get("einsum") == "skgd,Nkd->kgsN":
            # MaxText maps this product over the batch, so its operands have no batch axis.
            mine = {**mine, "equation": "skgd,Nkd->kgsN", "lhs_shape": mine["lhs_shape"][1:],
                    "rhs_shape": mine["rhs_shape"][1:]}
        for side in ("lhs", "rhs"):
            shape = [int(d) for d in mine[f"{side}_shape"]]
            if theirs["op"].startswith("ragged_dot") and side == "lhs":
                shape = padded(shape, case)
            if theirs.get(side) is not None and shape != theirs[side]:
                return f"{where}: {side} {shape}, MaxText has {theirs[side]}"
        if theirs.get("einsum") is not None and mine["equation"] != theirs["einsum"]:
            return f"{where}: equation '{mine['equation']}', MaxText has '{theirs['einsum']}'"
        if mine["logged"] != theirs["logged"]:
            return f"{where}: logged {mine['logged']}, MaxText has {theirs['logged']}"
        calls = theirs.get("calls", 1)
        if theirs["module"] in ("decoder", "decoder/position_embedder", "token_embedder"):
            # A jnp.dot whose trace JAX caches: MTP's runs of it are calls that Qwix does not see.
            runs = case.config.get("mtp_num_layers", 0)
            tiled = theirs["module"] == "decoder" and case.config.get("num_vocab_tiling", 1) > 1
            calls += runs - 1 if tiled else runs
        if not case.config.get("scan_layers", True) and int(mine["count"]) != calls:
            return f"{where}: count {mine['count']}, MaxText calls it {theirs['calls']} times"
    return None


def check_parameters(octet, case):
    done = run(octet, "inspect", case, "--json")
    if done.returncode != 0:
        return f"exit {done.returncode}: {done.stderr.strip()}"
    ours = {p["name"]: [int(d) for d in p["shape"]] for p in json.loads(done.stdout)["parameters"]}
    for name in sorted(ours.keys() | case.parameters.keys()):
        if ours.get(name) != case.parameters.get(name):
            return f"parameter {name}: {ours.get(name)}, MaxText has {case.parameters.get(name)}"
    return None


def check_refused(octet, case):
    """Linen's flavour is refused by name; `check` says that no rule reaches its MTP block."""
    done = run(octet, "trace", case)
    if done.returncode != 2 or "Linen" not in done.stderr:
        return f"exit {done.returncode}, expected 2 and a sentence about Linen: {done.stderr.strip()}"
    return None


def purpose(case):
    return next((key for key, applies, _ in ON_PURPOSE if applies(case.config)), None)


def check_on_purpose(octet, case):
    done = run(octet, "trace", case)
    if done.returncode != 2 or purpose(case) not in done.stderr:
        return f"exit {done.returncode}, expected 2 naming {purpose(case)}: {done.stderr.strip()}"
    return None


def check_predicted(octet, case):
    """Where MaxText refuses or crashes, `octet check` must say so."""
    error = case.detail["error"]
    if "MagicMock" in error or "on GPU" in error:
        return None  # no fault of the config: the reference ran without an accelerator's kernels
    done = run(octet, "check", case)
    if done.returncode not in (1, 2):
        return f"exit {done.returncode}; MaxText: {case.detail['error'][:200]}"
    return None


def parameters_of(text):
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, shape = line.split(" ", 1)
            found[name] = json.loads(shape)
    return found


class Files:
    """A folder or an archive, by relative name."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.texts = {}
        if self.path.is_dir():
            for file in self.path.rglob("*"):
                if file.suffix in (".txt", ".json", ".jsonl"):
                    self.texts[str(file.relative_to(self.path))] = file.read_text()
        else:
            with tarfile.open(self.path) as archive:
                for member in archive:
                    if member.isfile():
                        self.texts[member.name] = archive.extractfile(member).read().decode()

    def get(self, name, default=None):
        return self.texts.get(name, default)


def config_of_name(name, files):
    """Traces without a .json of their own: a scanned twin's config, or what the name says (README)."""
    twin = name.replace("_scan-f", "_scan-t")
    if twin != name and files.get(f"traces/{twin}.json"):
        detail = json.loads(files.get(f"traces/{twin}.json"))
        return {**detail, "config": {**detail["config"], "scan_layers": False}, "lines": None}
    said = re.fullmatch(r"ds3-671b_(nnx|linen)_(gmm|ragged|dense)_scan-(t|f)_sliced-(t|f)_qmtp-(t|f)", name)
    if not said:
        return None
    flavour, experts, scan, sliced, quantize_mtp = said.groups()
    return {"flavour": flavour, "lines": None, "config": {
        "model_name": "deepseek3-671b", "mtp_num_layers": 1, "quantization": "fp8_full",
        "use_qwix_quantization": True, "quantize_mtp": quantize_mtp == "t", "scan_layers": scan == "t",
        "use_sliced_mla_proj": sliced == "t", "sparse_matmul": experts != "dense",
        "megablox": experts == "gmm"}}


def cases_of(files):
    """(kind, Case) of a folder laid out like golden/maxtext (traces/, params/) or a corpus."""
    for name in sorted(files.texts):
        stem = name[:-4]
        if name.startswith("traces/") and name.endswith(".txt") and not name.endswith("SUMMARY.txt"):
            base = stem.split("/", 1)[1]
            text = files.get(f"{stem}.json")
            detail = json.loads(text) if text else config_of_name(base, files)
            if detail is None:
                yield "unknown", Case(base, [], {}, None)
                continue
            case = Case(base, files.get(name).splitlines(), detail, None)
            yield ("refused" if case.linen else "trace"), case
        elif name.startswith("traces/") and name.endswith(".json") and not name.endswith("FAILED.json"):
            base = name.split("/", 1)[1][:-5]
            if not files.get(f"traces/{base}.txt"):
                detail = json.loads(files.get(name))
                lines = [f"[QWIX] module='{i['module']}' op={i['op']} rule={i['rule']}"
                         for i in detail["lines"]]
                case = Case(base, lines, detail, None)
                yield ("refused" if case.linen else "trace"), case
        elif name.startswith("params/") and name.endswith(".txt"):
            base = stem.split("/", 1)[1]
            head = files.get(name).splitlines()[0]
            model, rest = head[2:].split(" ", 1)
            config = json.loads(rest[:rest.index("}") + 1].replace("'", '"'))
            config |= {"model_name": model, "scan_layers": "scan_layers=True" in head}
            yield "params", Case(base, None, {"config": config}, parameters_of(files.get(name)))
        elif name.startswith("corpus/") and name.endswith(".txt") and name.count("/") == 1:
            base = stem.split("/", 1)[1]
            detail = json.loads(files.get(f"{stem}.json"))
            parameters = files.get(f"corpus/params/{base}.txt")
            case = Case(base, files.get(name).splitlines(), detail,
                        parameters_of(parameters) if parameters else None)
            yield "refused" if case.linen else "on purpose" if purpose(case) else "trace", case
        elif name == "corpus/FAILED.jsonl":
            for line in files.get(name).splitlines():
                detail = json.loads(line)
                yield "predicted", Case(detail["name"], None, detail, None)


def checks_of(kind, case):
    if kind == "trace":
        checks = [("lines", check_lines), ("shapes", check_shapes)]
        return checks + ([("parameters", check_parameters)] if case.parameters is not None else [])
    return {"params": [("parameters", check_parameters)], "refused": [("refusal", check_refused)],
            "on purpose": [("refusal", check_on_purpose)],
            "predicted": [("prediction", check_predicted)],
            "unknown": [("config", lambda octet, case: "no config is known for this trace")]}[kind]


class BrokenFlavours:
    """The same in the shape of a folder."""
    texts = {"corpus/FAILED.jsonl": ""}

    def get(self, name, default=None):
        return "\n".join(json.dumps({"name": name, "error": "see FAILED.json", "config": {
            "model_name": "deepseek3-671b", "quantization": "fp8_full", **config}})
            for name, config in BROKEN_FLAVOURS.items())


def sources():
    yield "broken flavours", BrokenFlavours()
    for archive in sorted((HERE / "data").glob("*.tar.xz")):
        yield archive.name, Files(archive)
    full = os.environ.get("OCTET_GOLDEN") or HERE.parents[1].parent / "shared" / "golden"
    if (pathlib.Path(full) / "maxtext" / "traces").is_dir():
        yield "full reference folder", Files(pathlib.Path(full) / "maxtext")
    else:
        print("not run: the full reference folder (OCTET_GOLDEN is not set, ../shared/golden is absent)")


def main():
    arguments = sys.argv[1:]
    every = int(arguments.pop(0).removeprefix("--every=")) if arguments[0].startswith("--every=") else 1
    octet, pattern = arguments[0], (arguments[1] if len(arguments) > 1 else "*")
    failures, passed, seen = [], 0, set()

    def work(job):
        kind, case, label, check = job
        return job, check(octet, case)

    for origin, files in sources():
        cases = [(kind, case) for kind, case in cases_of(files)
                 if fnmatch.fnmatch(case.name, pattern)]
        fresh = [(kind, case) for kind, case in cases if case.key(kind) not in seen]
        seen |= {case.key(kind) for kind, case in fresh}
        jobs = [(kind, case, label, check) for kind, case in fresh
                for label, check in checks_of(kind, case)][::every]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for (kind, case, label, _), error in pool.map(work, jobs):
                if error:
                    failures.append(f"{case.name} ({label}): {error}")
                else:
                    passed += 1
        print(f"{origin}: {len(cases)} files ({len(cases) - len(fresh)} the same as above), "
              f"{len(jobs)} checks{f', one in {every} of what the plain build runs' if every > 1 else ''}")
    for failure in failures[:1000]:
        print(f"FAIL {failure}")
    if not passed and not failures:
        failures.append("nothing ran")
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
