"""How the tests run octet: a clean environment, all three streams, and a daemon when there is one."""
import contextlib
import os
import re
import socket
import subprocess
import tempfile
import time

OCTET = None   # set by test_cli.py
OCTETD = None  # None: not built

LINE = re.compile(r"\[QWIX\] module='([^']*)' op=(\w+) rule=(None|\d+)")
TINY = ["deepseek3-tiny", "quantization=fp8_full", "mtp_num_layers=1"]


def environment(**more):
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("M_", "OCTET_")) and k not in ("NO_COLOR", "TERM")}
    kept.update(more)
    return kept


class Done:
    def __init__(self, process, out, err):
        self.rc, self.out, self.err = process.returncode, out, err


def run(*arguments, env=None, text=None, timeout=120, **popen):
    done = run_once(*arguments, env=env, text=text, timeout=timeout, **popen)
    # The leak checker stops all threads to look at them, and now and then trips over one that ends just then.
    if done.rc and "LeakSanitizer has encountered a fatal error" in done.err:
        print(f"once more, since LeakSanitizer itself failed: octet {' '.join(arguments)}", flush=True)
        done = run_once(*arguments, env=env, text=text, timeout=timeout, **popen)
    return done


def run_once(*arguments, env=None, text=None, timeout=120, **popen):
    process = subprocess.Popen([OCTET, *arguments], env=environment(**(env or {})),
                               stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **popen)
    out, err = process.communicate(text, timeout=timeout)
    return Done(process, out, err)


@contextlib.contextmanager
def folder(**files):
    """A temporary folder with these files in it; NAME_EXT becomes NAME.EXT."""
    with tempfile.TemporaryDirectory(prefix="octet-cli-") as path:
        for name, content in files.items():
            with open(os.path.join(path, name.replace("_", ".")), "w", newline="") as file:
                file.write(content)
        yield path


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def daemon(*arguments):
    """An octetd on a free port; yields HOST:PORT."""
    with tempfile.TemporaryFile(mode="w+") as log, folder() as path:
        port = os.path.join(path, "port")
        process = subprocess.Popen([OCTETD, "--listen", "127.0.0.1:0", "--port-file", port, *arguments],
                                   stdout=log, stderr=log, env=environment())
        try:
            wait_for(process, port, log)
            with open(port) as file:
                yield f"127.0.0.1:{file.read().strip()}"
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(process, port, log):
    end = time.monotonic() + 60
    while not (os.path.exists(port) and os.path.getsize(port)):
        if process.poll() is not None or time.monotonic() > end:
            log.seek(0)
            raise AssertionError(f"octetd does not serve: {log.read()}")
        time.sleep(0.02)
