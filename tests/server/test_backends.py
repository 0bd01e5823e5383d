"""Sessions placed on an accelerator, over the wire: the same bits as on the CPU, a trace that says what ran where, and
a device that fails a call without harm to the daemon. OpenCL runs on PoCL."""
import subprocess

import grpc
import pytest

from test_sessions import CODE, Sessions, batch, text_of
from test_standard_clients import error_of

FP8 = {"quantization": "fp8_full", "mtp_num_layers": "1", "quantize_mtp": "true"}


def model():
    from test_sessions import TINY
    return {**TINY, "overrides": {**TINY["overrides"], **FP8}}


@pytest.fixture
def opencl(start):
    """A daemon with OpenCL as its first backend, where this machine has a device."""
    def start_one(backends="opencl,cpu", **settings):
        return Sessions(start(extra=("--backends", backends), **settings))
    return start_one


def digests(client, session):
    figures = []
    for step in range(2):
        reply = client("TrainStep", session_id=session, batch=batch(step), step=step, request_id=f"{session}-{step}")
        figures.append((reply.digest, reply.losses.total, reply.grad_norm))
    return figures


def backends_of(trace):
    return {(line.rule >= 0, line.backend) for line in trace.interceptions}


def test_a_session_on_opencl_has_the_bits_of_the_cpu(opencl):
    client = opencl()
    assert list(client("GetServerInfo").backends) == ["opencl", "cpu"]
    here = client.create(model=model(), placement={"backend": "cpu"})
    there = client.create(model=model())  # the first backend is where sessions go
    assert {backend for _, backend in backends_of(here.trace)} == {"cpu"}
    assert (True, "opencl") in backends_of(there.trace) and (False, "cpu") in backends_of(there.trace)
    assert (False, "opencl") not in backends_of(there.trace)
    assert (here.backend, there.backend) == ("cpu", "opencl")
    assert sorted(s.backend for s in client("ListSessions").sessions) == ["cpu", "opencl"]
    assert digests(client, here.session_id) == digests(client, there.session_id)
    again = client.create(model=model(), placement={"backend": "opencl", "device": "0"}, mode=1)
    assert (True, "opencl") in backends_of(again.trace)


@pytest.mark.parametrize("placement, field", [
    ({"backend": "cuda"}, "placement.backend"), ({"backend": "opencl", "device": "9"}, "placement.device"),
    ({"device": "x"}, "placement.device")])
def test_a_place_that_is_not_there_is_refused_by_name(opencl, placement, field):
    client = opencl()
    call, request = client.method("CreateSession")
    error = error_of(call, request(model=model(), placement=placement))
    assert error.code() == CODE.INVALID_ARGUMENT
    assert field in error.details() and "opencl:0, cpu:0" in error.details(), text_of(error)


def test_a_device_without_memory_fails_the_call_and_no_more(opencl):
    client = opencl(config="limits:\n  device_memory_bytes: 4KiB\n")
    made = client.create(model=model())
    for _ in range(2):
        call, request = client.method("ForwardBackward")
        error = error_of(call, request(session_id=made.session_id, batch=batch()))
        assert error.code() == CODE.RESOURCE_EXHAUSTED and "4096" in error.details(), text_of(error)
    assert client("DescribeSession", session_id=made.session_id).accumulated == 0
    here = client.create(model=model(), placement={"backend": "cpu"})
    assert client("ForwardBackward", session_id=here.session_id, batch=batch()).losses.total > 0


def octetd(request, *arguments):
    return subprocess.run([request.config.getoption("--octetd"), *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("backends, said", [
    ("abacus", "abacus"), ("cpu:1", "cpu:1"), ("cpu,cpu", "twice"), ("", "''"), ("opencl:7", "7"),
    ("cpu junk", "'cpu junk'"), ("opencl 0", "'opencl 0'"), ("opencl:", "'opencl:'"), ("opencl:00", "opencl:00"),
    ("opencl:+0", "opencl:+0"), ("opencl: 0", "opencl: 0"), ("opencl:-1", "opencl:-1"),
    (",".join(["cpu"] + [f"opencl:{i}" for i in range(20, 30)]), "20")])
def test_backends_that_cannot_be_are_refused_at_the_start(request, backends, said):
    done = octetd(request, "--backends", backends, "--listen", "127.0.0.1:0")
    assert done.returncode in (1, 2)
    assert "backends" in done.stderr and said in done.stderr and not done.stdout, done.stderr


def test_a_machine_without_the_driver_says_which_library_it_lacks(request):
    done = octetd(request, "--backends", "cuda", "--listen", "127.0.0.1:0")
    if done.returncode == 0:
        pytest.skip("this machine has a CUDA device")
    assert done.returncode == 1 and "libcuda.so.1" in done.stderr, done.stderr
