"""The Python of README.md and docs/training.md, run as it stands there against a real octetd.

What could break: an example that a newcomer copies and that ends in a traceback, or prints what the page does not say.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def examples(page, address):
    """The page's Python blocks as one program, which is how a reader takes them: later ones use earlier ones' names."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    assert blocks, page
    text = "\n".join(blocks)
    assert "127.0.0.1:50051" in text, page
    return text.replace("127.0.0.1:50051", address)


def printed(page, address):
    done = subprocess.run([sys.executable, "-c", examples(page, address)], cwd=ROOT, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_readme(start):
    lines = printed("README.md", start().address)
    assert "decoder/layers/mlp/wi_0 dot_general0 0" in lines
    assert len(lines) == 13 + 1, "13 lines of the trace, as the page says, and one of the matmul"
    difference, shape, sqnr = re.fullmatch(r"(\S+) (\(.*\)) (\S+)", lines[-1]).groups()
    assert shape == "(512, 256)"
    assert 0 < float(difference) < 10
    assert 25 < float(sqnr) < 40, "float8_e4m3fn has three bits of mantissa"


def test_training(start):
    before, gradient, after = printed("docs/training.md", start().address)
    loss = float(before.split()[1])
    assert 5 < loss < 6.5, "near the logarithm of 256"
    assert before.endswith("(2, 16)") and gradient.endswith("(64, 256)")
    assert after.split()[1] == "20"
    assert float(after.split()[2]) < loss / 2, "it learns one batch by heart"
