"""Sessions over the wire, as a client sees them that has only API.md's names: created, filled, read, trained,
saved; retried and reordered; by several clients; with clients and the daemon killed."""
import os
import signal
import struct
import subprocess
import sys
import threading
import time

import grpc
import pytest
from google.protobuf import message_factory

from test_standard_clients import Client, error_of

CODE = grpc.StatusCode
F32, BF16, S32 = 1, 2, 10
TINY = {"name": "deepseek3-tiny", "overrides": {
    "base_emb_dim": "32", "base_num_query_heads": "2", "base_num_kv_heads": "2", "base_mlp_dim": "32",
    "base_moe_mlp_dim": "16", "base_num_decoder_layers": "2", "first_num_dense_layers": "1", "vocab_size": "64",
    "num_experts": "4", "num_experts_per_tok": "2", "q_lora_rank": "16", "kv_lora_rank": "8",
    "qk_nope_head_dim": "8", "qk_rope_head_dim": "8", "v_head_dim": "8", "max_target_length": "16",
    "per_device_batch_size": "2", "dtype": "float32", "weight_dtype": "float32"}}


class Sessions(Client):
    def __init__(self, daemon):
        super().__init__(daemon.channel())

    def __call__(self, method, /, **fields):
        call, request = self.method(method)
        return call(request(**fields), timeout=120)

    def later(self, method, /, **fields):
        call, request = self.method(method)
        return call.future(request(**fields), timeout=120)

    def raw(self, name):
        return self.channel.unary_unary(f"/octet.v1.Octet/{name}")

    def messages(self, name):
        method = self.service.FindMethodByName(name)
        return (message_factory.GetMessageClass(method.input_type),
                message_factory.GetMessageClass(method.output_type))

    def put(self, *chunks):
        request, reply = self.messages("PutTensors")
        call = self.channel.stream_unary("/octet.v1.Octet/PutTensors", request.SerializeToString, reply.FromString)
        return call((request(**chunk) for chunk in chunks), timeout=120)

    def get(self, session, timeout=120, **fields):
        request, reply = self.messages("GetTensors")
        call = self.channel.unary_stream("/octet.v1.Octet/GetTensors", request.SerializeToString, reply.FromString)
        return call(request(session_id=session, **fields), timeout=timeout)

    def tensors(self, session, **fields):
        """name -> bytes; every chunk continues the one before."""
        out = {}
        for chunk in self.get(session, **fields):
            assert chunk.offset == len(out.get(chunk.name, b""))
            out[chunk.name] = out.get(chunk.name, b"") + chunk.data
        return out

    def create(self, **fields):
        return self("CreateSession", **{"model": TINY, "seed": 7, **fields})


def text_of(error):
    return f"{error.code().name}: {error.details()}"


def ids(rows):
    return {"dtype": S32, "shape": [len(rows), len(rows[0])],
            "data": b"".join(struct.pack(f"<{len(row)}i", *row) for row in rows)}


def batch(seed=0, rows=2, length=16):
    return {"tokens": ids([[(7 * i + 13 * r + seed) % 60 + 1 for i in range(length)] for r in range(rows)])}


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def chunks_of(session, parameter, data, size):
    for offset in range(0, len(data), size):
        yield {"session_id": session, "name": parameter.name, "dtype": parameter.dtype,
               "shape": parameter.shape, "offset": offset, "data": data[offset:offset + size]}


def kernel(session, ending="wq_a/kernel"):
    return next(p for p in session.parameters if p.name.endswith(ending))


# ---- Life of a session ----

def test_a_session_is_created_described_and_deleted(start):
    client = Sessions(start())
    made = client.create()
    assert made.step == 0 and made.peak_bytes >= made.memory_bytes > 0 and made.trace.interceptions
    assert [p.name for p in made.parameters] == sorted(p.name for p in made.parameters)
    described = client("DescribeSession", session_id=made.session_id)
    assert described == made
    listed, = client("ListSessions").sessions
    assert listed.session_id == made.session_id and listed.peak_bytes == made.peak_bytes
    assert not listed.parameters
    client("DeleteSession", session_id=made.session_id)
    assert not client("ListSessions").sessions
    for name in ("DescribeSession", "KeepAlive", "DeleteSession", "Forward", "OptimStep", "SaveCheckpoint"):
        call, request = client.method(name)
        error = error_of(call, request(session_id=made.session_id))
        assert error.code() == CODE.NOT_FOUND and made.session_id in error.details(), name
        error = error_of(call, request())
        assert error.code() == CODE.INVALID_ARGUMENT and "session_id" in error.details(), name


def test_the_session_stands_in_the_metadata(start):
    client = Sessions(start())
    call, request = client.method("CreateSession")
    made, first = call.with_call(request(model=TINY, empty=True))
    assert dict(first.initial_metadata())["octet-session"] == made.session_id
    call, request = client.method("DescribeSession")
    _, told = call.with_call(request(session_id=made.session_id),
                             metadata=[("octet-session", made.session_id)])
    assert dict(told.initial_metadata())["octet-session"] == made.session_id
    assert dict(told.initial_metadata())["octet-request-id"]


def test_a_known_request_id_gives_the_same_session(start):
    client = Sessions(start())
    one = client.create(request_id="create-1")
    again = client.create(request_id="create-1")
    other = client.create(request_id="create-2")
    assert again.session_id == one.session_id != other.session_id
    assert again.replayed and not one.replayed
    client("DeleteSession", session_id=one.session_id)
    assert not client.create(request_id="create-1").replayed


@pytest.mark.parametrize("fields, code, named", [
    ({"model": {"name": "deepseek3-tinny"}}, CODE.NOT_FOUND, "deepseek3-tiny"),
    ({"model": {"name": "deepseek3-tiny", "overrides": {"base_emb_dimm": "4"}}}, CODE.INVALID_ARGUMENT,
     "model.overrides[base_emb_dimm]"),
    ({"model": {"name": "llama2-7b", "overrides": {"moba": "true"}}}, CODE.UNIMPLEMENTED, "'model': op 'chunk_mean'"),
    ({"rules": [{"module_path": "x"}, {"weight_qtype": "int8", "tile_size": "7"}]}, CODE.INVALID_ARGUMENT,
     "rules[1].tile_size"),
    ({"placement": {"backend": "abacus"}}, CODE.INVALID_ARGUMENT, "placement.backend"),
    ({"placement": {"memory_limit_bytes": 1000}}, CODE.RESOURCE_EXHAUSTED, "1000"),
    ({"lease_seconds": -1}, CODE.INVALID_ARGUMENT, "lease_seconds"),
    ({"lease_seconds": 2_000_000_000}, CODE.INVALID_ARGUMENT, "lease_seconds"),
    ({"batch_size": -1}, CODE.INVALID_ARGUMENT, "batch_size"),
    ({"adapter": {}}, CODE.UNIMPLEMENTED, "adapter"),
    ({"request_id": "two words"}, CODE.INVALID_ARGUMENT, "request_id"),
    ({"checkpoint": "x"}, CODE.FAILED_PRECONDITION, "data_dir"),
])
def test_what_makes_no_session(start, fields, code, named):
    client = Sessions(start())
    call, request = client.method("CreateSession")
    error = error_of(call, request(**{"model": TINY, **fields}))
    assert error.code() == code and named in error.details(), text_of(error)
    assert not client("ListSessions").sessions


def test_sessions_have_limits_and_give_back_what_they_took(start):
    client = Sessions(start(config="limits: {sessions: 2}"))
    peak = client.create().peak_bytes
    client.create()
    call, request = client.method("CreateSession")
    error = error_of(call, request(model=TINY))
    assert error.code() == CODE.RESOURCE_EXHAUSTED and "limits.sessions" in error.details()

    client = Sessions(start(config=f"limits: {{session_memory_bytes: {2 * peak + peak // 2}}}"))
    kept = [client.create().session_id for _ in range(2)]
    call, request = client.method("CreateSession")
    error = error_of(call, request(model=TINY))
    assert error.code() == CODE.RESOURCE_EXHAUSTED
    assert str(peak) in error.details() and str(2 * peak + peak // 2) in error.details()
    for _ in range(20):
        client("DeleteSession", session_id=kept.pop())
        kept.append(client.create().session_id)


def test_a_batch_beyond_the_plan_is_within_the_servers_limit(start):
    client = Sessions(start(config="limits: {session_memory_bytes: 24MiB}"))
    session = client.create().session_id
    for method in ("Forward", "TrainStep"):
        call, request = client.method(method)
        error = error_of(call, request(session_id=session, batch={
            "tokens": {"dtype": S32, "shape": [4096, 64], "data": bytes(4 * 4096 * 64)}}))
        assert error.code() == CODE.RESOURCE_EXHAUSTED, text_of(error)
        assert "limits.session_memory_bytes" in error.details() and str(24 << 20) in error.details()
    for seed in range(3):  # what fits goes on
        client("ForwardBackward", session_id=session, batch=batch(seed, rows=4))
    assert client("OptimStep", session_id=session).step == 1
    client("DeleteSession", session_id=session)


def test_a_lease_ends_and_every_call_renews_it(start):
    client = Sessions(start(config="sessions: {lease_ms: 3000}"))
    quiet, kept, called = (client.create(lease_seconds=s).session_id for s in (1, 2, 0))
    assert client("KeepAlive", session_id=kept).lease_seconds == 2
    assert client("KeepAlive", session_id=called).lease_seconds == 3
    end = time.monotonic() + 5
    while time.monotonic() < end:
        client("KeepAlive", session_id=kept)
        client("Forward", session_id=called, batch=batch())
        time.sleep(0.2)
    assert {s.session_id for s in client("ListSessions").sessions} == {kept, called}
    call, request = client.method("DescribeSession")
    assert error_of(call, request(session_id=quiet)).code() == CODE.NOT_FOUND


# ---- Tensors ----

def test_tensors_go_in_and_come_out_in_chunks_of_any_size(start):
    client = Sessions(start())
    made = client.create(empty=True)
    session, chosen = made.session_id, made.parameters[:3]
    data = {p.name: bytes((i * 7 + n) % 256 & 0x3f for i in range(p.bytes)) for n, p in enumerate(chosen)}
    streams = [list(chunks_of(session, p, data[p.name], 4 * (n + 5))) for n, p in enumerate(chosen)]
    mixed = [stream[i] for i in range(max(map(len, streams))) for stream in streams if i < len(stream)]
    for chunk in mixed[1:]:
        del chunk["session_id"]
    reply = client.put(*mixed)
    assert reply.tensors == 3 and reply.bytes == sum(p.bytes for p in chosen)
    for size in (8, 100, 0):
        got = client.tensors(session, names=[p.name for p in chosen], chunk_bytes=size)
        assert got == data
    everything = client.tensors(session)
    assert {name: len(value) for name, value in everything.items()} == {p.name: p.bytes for p in made.parameters}
    assert not any(map(any, (v for n, v in everything.items() if n not in data)))
    moments = client.tensors(session, kind=2, names=["mu/.*", "nu/token_embedder/embedding"])
    assert set(moments) == {"mu/" + p.name for p in made.parameters} | {"nu/token_embedder/embedding"}


def test_what_cannot_be_put(start):
    client = Sessions(start())
    made = client.create()
    session, parameter = made.session_id, kernel(made)
    data = bytes(parameter.bytes)
    good = {"session_id": session, "name": parameter.name, "dtype": parameter.dtype, "shape": parameter.shape,
            "offset": 0, "data": data}
    rest = {"offset": 8, "data": data[8:]}
    for chunks, named in [
        ([{**good, "shape": [1, *parameter.shape]}], "shape"),
        ([{**good, "shape": []}], "shape"),
        ([{**good, "dtype": S32}], "dtype"),
        ([{**good, "dtype": 0}], "dtype"),
        ([{**good, "name": "decoder/nothing"}], "name"),
        ([{**good, "offset": -4}], "offset"),
        ([{**good, "offset": 4}], "offset"),
        ([{**good, "data": data + b"1234"}], "offset"),
        ([{**good, "data": data[:6]}], "data"),
        ([{**good, "data": data[:8]}], "have not come"),
        ([{**good, "data": b""}], "have not come"),
        ([{**good, "data": data[:16]}, {**good, **rest}], "overlaps"),
        ([{**good, "data": data[:4]}, {**good, **rest}], "missing"),
        ([good, good], "overlaps"),
        ([{**good, "kind": 2}], "mu/"),
        ([good, {**good, "session_id": "another"}], "session_id"),
        ([], "message"),
    ]:
        error = error_of(client.put, *chunks)
        assert error.code() in (CODE.INVALID_ARGUMENT, CODE.NOT_FOUND), text_of(error)
        assert named in error.details(), text_of(error)
    client.put(good)  # and the session is free again
    error = error_of(lambda: list(client.get(session, names=["nothing"])))
    assert error.code() == CODE.NOT_FOUND and "nothing" in error.details()
    error = error_of(lambda: list(client.get(session, names=["("])))
    assert error.code() == CODE.INVALID_ARGUMENT and "names[0]" in error.details()


def test_a_stream_that_is_given_up_frees_the_session(start):
    client = Sessions(start(config="limits: {receive_ms: 1000, max_message_bytes: 1MiB, config_request_bytes: 1MiB}"))
    made = client.create()
    session, parameter = made.session_id, kernel(made)
    request, reply = client.messages("PutTensors")
    put = client.channel.stream_unary("/octet.v1.Octet/PutTensors", request.SerializeToString, reply.FromString)
    hold = threading.Event()

    def half():
        yield request(session_id=session, name=parameter.name, dtype=parameter.dtype, shape=parameter.shape,
                      data=bytes(8))
        hold.wait(60)

    given_up = put.future(half())
    time.sleep(0.3)
    waits = client.later("DescribeSession", session_id=session)
    given_up.cancel()
    assert waits.result().session_id == session
    stalled = put.future(half())
    time.sleep(0.3)
    assert client("DescribeSession", session_id=session).session_id == session  # after receive_ms
    assert stalled.code() == CODE.DEADLINE_EXCEEDED
    hold.set()
    stream = client.get(session, chunk_bytes=8)
    next(stream)
    stream.cancel()
    client.put(*chunks_of(session, parameter, bytes(parameter.bytes), 64))


def test_a_product_takes_a_sessions_parameter(start):
    client = Sessions(start())
    made = client.create()
    other = client.create()
    name = "token_embedder/embedding"
    shape = next(p.shape for p in made.parameters if p.name == name)
    weights = client.tensors(made.session_id, names=[name])[name]
    one = {"tensor": {"dtype": F32, "shape": [1, shape[0]], "data": struct.pack("<f", 1.5) * shape[0]}}
    dims = {"lhs_contracting": [1], "rhs_contracting": [0]}
    ref = {"ref": {"session_id": made.session_id, "name": name}}
    by_ref = client("DotGeneral", lhs=one, rhs=ref, dimension_numbers=dims)
    sent = client("DotGeneral", lhs=one, dimension_numbers=dims,
                  rhs={"tensor": {"dtype": F32, "shape": shape, "data": weights}})
    assert by_ref.out == sent.out and any(by_ref.out.data)
    dot, request = client.method("DotGeneral")
    for rhs, code, named in [
        ({"session_id": made.session_id, "name": "x"}, CODE.NOT_FOUND, "rhs.ref.name"),
        ({"session_id": "s-0", "name": name}, CODE.NOT_FOUND, "rhs.ref.session_id"),
    ]:
        error = error_of(dot, request(lhs=one, rhs={"ref": rhs}, dimension_numbers=dims))
        assert error.code() == code and named in error.details(), text_of(error)
    error = error_of(dot, request(lhs={"ref": {"session_id": other.session_id, "name": name}}, rhs=ref,
                                  dimension_numbers={"lhs_contracting": [0, 1], "rhs_contracting": [0, 1]}))
    assert error.code() == CODE.INVALID_ARGUMENT and "rhs.ref.session_id" in error.details()


# ---- Steps ----

def step(client, session, number, seed=None, **fields):
    return client("TrainStep", session_id=session, step=number, request_id=f"train-{number}",
                  batch=batch(number if seed is None else seed), **fields)


def figures(reply):
    return (reply.losses.SerializeToString(deterministic=True), reply.grad_norm, reply.learning_rate,
            reply.digest, reply.step)


def test_a_retried_step_changes_nothing_and_says_the_same(start):
    client = Sessions(start())
    one, two = client.create().session_id, client.create().session_id
    for number in range(3):
        first = step(client, one, number)
        assert not first.replayed and first.step == number + 1
        for _ in range(2):
            again = step(client, one, number)
            assert again.replayed and figures(again) == figures(first)
            assert again.logprobs == first.logprobs
        assert figures(step(client, two, number)) == figures(first)
    assert client.tensors(one) == client.tensors(two)
    assert client.tensors(one, kind=2) == client.tensors(two, kind=2)
    # An older one still has its figures, though not its tensors.
    old = step(client, one, 0)
    assert old.replayed and old.step == 1 and not old.logprobs.shape


def test_gradients_add_up_and_a_retry_counts_once(start):
    client = Sessions(start())
    one, two = client.create().session_id, client.create().session_id

    def backward(session, name, seed):
        return client("ForwardBackward", session_id=session, request_id=name, batch=batch(seed), reduction=1,
                      denominator=60.0, return_gradients=["decoder/decoder_norm/scale"])

    for session, retries in ((one, 1), (two, 3)):
        for name, seed in (("a", 1), ("b", 2)):
            replies = [backward(session, name, seed) for _ in range(retries)]
            assert all(r.gradients == replies[0].gradients for r in replies)
            assert [r.replayed for r in replies] == [False] + [True] * (retries - 1)
            assert {r.accumulated for r in replies} == {1 if name == "a" else 2}
    assert client.tensors(one, kind=1) == client.tensors(two, kind=1)
    client("OptimStep", session_id=one, request_id="o")
    steps = [client("OptimStep", session_id=two, request_id="o") for _ in range(2)]
    assert steps[0].digest == steps[1].digest and steps[1].replayed
    assert client.tensors(one) == client.tensors(two)
    assert not any(map(any, client.tensors(one, kind=1).values()))


def test_an_id_stands_for_one_request(start):
    client = Sessions(start())
    session = client.create().session_id
    step(client, session, 0)
    for other in ({"seed": 5}, {"optimizer": {"learning_rate": 0.5}}, {"reduction": 1, "denominator": 7.0}):
        with pytest.raises(grpc.RpcError) as error:
            step(client, session, 0, **other)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "request_id" in text_of(error.value)
    assert step(client, session, 0).replayed


def test_tensors_of_a_pass_that_comes_again_are_computed_again(start, tmp_path):
    """The reply itself is gone: the session was loaded from its checkpoint."""
    client = Sessions(start(extra=["--data-dir", str(tmp_path)]))
    session = client.create().session_id

    def backward(name, seed):
        return client("ForwardBackward", session_id=session, request_id=name, batch=batch(seed), trace_level=1,
                      return_gradients=["decoder/.*/scale"])

    def told(reply):
        return reply.losses, reply.grad_norm, reply.step, reply.accumulated

    older, first = backward("a", 1), backward("b", 2)
    assert first.gradients and first.logprobs.shape
    client("SaveCheckpoint", session_id=session, name="c")
    client("LoadCheckpoint", session_id=session, name="c")
    again = backward("b", 2)
    assert again.replayed and told(again) == told(first)
    assert again.logprobs == first.logprobs and again.gradients == first.gradients and again.trace == first.trace
    lost = backward("a", 1)  # others have been added since
    assert lost.replayed and told(lost) == told(older) and not lost.gradients
    assert client("DescribeSession", session_id=session).accumulated == 2


def test_chunks_of_a_batch_train_as_the_whole_does(start):
    client = Sessions(start())
    whole, parts = client.create().session_id, client.create().session_id
    rows = [[(3 * i + 5 * r) % 60 + 1 for i in range(16)] for r in range(4)]
    for session, pieces in ((whole, [rows]), (parts, [rows[:2], rows[2:]])):
        for i, piece in enumerate(pieces):
            client("ForwardBackward", session_id=session, request_id=f"p{i}", batch={"tokens": ids(piece)},
                   reduction=1, denominator=60.0)
    a, b = client.tensors(whole, kind=1), client.tensors(parts, kind=1)
    scale = max(abs(x) for value in a.values() for x in floats(value))
    assert scale > 0
    for name, value in a.items():
        assert max(abs(x - y) for x, y in zip(floats(value), floats(b[name]))) <= 1e-5 * scale, name


def test_a_step_out_of_order_is_refused(start):
    client = Sessions(start())
    session = client.create().session_id
    before = client.tensors(session)
    call, request = client.method("TrainStep")
    for number in (1, 7, -1):
        error = error_of(call, request(session_id=session, step=number, request_id=f"r{number}", batch=batch()))
        assert error.code() == CODE.FAILED_PRECONDITION and "step" in error.details(), text_of(error)
    assert client.tensors(session) == before
    step(client, session, 0)
    error = error_of(call, request(session_id=session, step=0, request_id="late", batch=batch()))
    assert error.code() == CODE.FAILED_PRECONDITION
    error = error_of(call, request(session_id=session, step=1, request_id="train-0", batch=batch()))
    assert error.code() == CODE.INVALID_ARGUMENT and "train-0" in error.details()
    optim, request = client.method("OptimStep")
    assert error_of(optim, request(session_id=session)).code() == CODE.FAILED_PRECONDITION  # no gradients


@pytest.mark.parametrize("fields, named", [
    ({"batch": {}}, "batch.tokens"),
    ({"batch": {"tokens": {"dtype": F32, "shape": [1, 2], "data": struct.pack("<2f", 1, float("nan"))}}},
     "batch.tokens.dtype"),
    ({"batch": {"tokens": ids([[1, 64]])}}, "batch.tokens[0,1]"),
    ({"batch": {"tokens": ids([[1, -1]])}}, "batch.tokens[0,1]"),
    ({"batch": {"tokens": ids([[1, 2]]), "targets": ids([[1, 2, 3]])}}, "batch.targets"),
    ({"batch": {"tokens": {"dtype": S32, "shape": [4], "data": bytes(16)}}}, "batch.tokens"),
    ({"reduction": 1}, "denominator"),
    ({"denominator": 2.0}, "denominator"),
    ({"return_gradients": ["nothing"]}, "return_gradients[0]"),
    ({"return_gradients": [".*", "("]}, "return_gradients[1]"),
    ({"optimizer": {"adam_b1": 2.0}}, "optimizer.adam_b1"),
    ({"optimizer": {"opt_type": "sdg"}}, "optimizer.opt_type"),
    ({"optimizer": {"adamw_mask": ["norm", "("]}}, "optimizer.adamw_mask[1]"),
    ({"optimizer": {"adamw_mask": ["a)(b"]}}, "optimizer.adamw_mask[0]"),
    ({"reduction": 1, "denominator": 1e308}, "denominator"),
    ({"request_id": "x" * 200}, "request_id"),
])
def test_a_step_that_is_refused_changes_nothing(start, fields, named):
    client = Sessions(start())
    session = client.create().session_id
    before = client.tensors(session)
    call, request = client.method("TrainStep")
    error = error_of(call, request(**{"session_id": session, "batch": batch(), "request_id": "r", **fields}))
    assert error.code() == CODE.INVALID_ARGUMENT and named in error.details(), text_of(error)
    assert client.tensors(session) == before and not any(map(any, client.tensors(session, kind=1).values()))
    assert client("DescribeSession", session_id=session).accumulated == 0
    assert client("TrainStep", session_id=session, request_id="r", batch=batch()).step == 1


def test_gradients_that_are_put_are_there_to_be_taken(start):
    client = Sessions(start())
    made = client.create()
    parameter = kernel(made)
    client.put({"session_id": made.session_id, "kind": 1, "name": parameter.name, "dtype": F32,
                "shape": parameter.shape, "data": struct.pack("<f", 3) + bytes(parameter.bytes - 4)})
    assert client("DescribeSession", session_id=made.session_id).accumulated == 1
    assert client("ListSessions").sessions[0].accumulated == 1
    taken = client("OptimStep", session_id=made.session_id)
    assert taken.grad_norm == 3 and taken.step == 1
    assert client("DescribeSession", session_id=made.session_id).accumulated == 0


def test_settings_that_are_not_set_are_the_configs(start):
    client = Sessions(start())
    one, two, three = (client.create().session_id for _ in range(3))
    plain = step(client, one, 0, optimizer={"steps": 10, "warmup_steps_fraction": 0.0})
    rate = plain.learning_rate
    assert rate > 0
    same = step(client, two, 0, optimizer={"steps": 10, "warmup_steps_fraction": 0.0, "learning_rate": rate})
    assert figures(same) == figures(plain)
    still = step(client, three, 0, optimizer={"learning_rate": 0.0, "steps": 10})
    assert still.learning_rate == 0 and still.digest != plain.digest


def test_a_model_without_mtp_has_no_such_loss(start):
    client = Sessions(start())
    without = client.create().session_id
    model = {**TINY, "overrides": {**TINY["overrides"], "mtp_num_layers": "1"}}
    with_mtp = client.create(model=model).session_id
    plain = client("Forward", session_id=without, batch=batch())
    both = client("Forward", session_id=with_mtp, batch=batch())
    assert not plain.losses.HasField("mtp") and not plain.mtp_acceptance
    assert both.losses.HasField("mtp") and both.losses.mtp > 0 and both.losses.mtp_weight_sum > 0
    assert len(both.mtp_acceptance) == 1 and 0 <= both.mtp_acceptance[0] <= 1


def test_documents_of_one_token_train_nothing_and_break_nothing(start):
    client = Sessions(start())
    model = {**TINY, "overrides": {**TINY["overrides"], "mtp_num_layers": "1"}}
    session = client.create(model=model).session_id
    alone = {**batch(), "segment_ids": ids([[i + 1 for i in range(16)]] * 2)}
    reply = client("ForwardBackward", session_id=session, batch=alone, request_id="alone")
    assert reply.losses.main == 0 and reply.losses.mtp == 0 and reply.losses.weight_sum == 0
    gradients = client.tensors(session, kind=1)
    for name, value in gradients.items():
        numbers = floats(value)
        assert all(x == x and abs(x) < 1e30 for x in numbers), name
        assert not name.startswith("mtp_block/") or not any(numbers), name


def test_the_trace_of_a_step_is_the_trace_of_the_model(start):
    client = Sessions(start())
    model = {**TINY, "overrides": {**TINY["overrides"], "use_qwix_quantization": "true",
                                   "quantization": "fp8_full"}}
    made = client.create(model=model)
    told = client("Trace", model=model).trace.interceptions
    lines = client("TrainStep", session_id=made.session_id, batch=batch(), trace_level=2).trace.interceptions
    key = lambda line: (line.module, line.op, line.rule, line.kind, line.count)
    assert [key(line) for line in lines] == [key(line) for line in told] == [
        key(line) for line in made.trace.interceptions]
    run = [line for line in lines if line.count and line.rule >= 0]
    assert run and all(line.digest and line.lhs.is_quantized for line in run)
    free = [line for line in lines if line.rule < 0]  # nothing was measured, which is not an amax of 0
    assert free and not any(line.digest or line.HasField("lhs") or line.HasField("cotangent") for line in free)


# ---- Several at once ----

def test_readers_share_and_writers_wait_their_turn(start):
    client = Sessions(start(slow=True, config="threads: 6"))
    session, other = client.create().session_id, client.create().session_id
    # Slow's own methods are not described by reflection: bytes by hand.
    request, reply = client.messages("Forward")
    order = []

    def begin(name, target, ms):
        call = client.raw(name).future(request(session_id=target, denominator=ms).SerializeToString(), timeout=60)
        time.sleep(0.05)  # so that they arrive in this order
        order.append(call)

    begin("SleepReading", session, 500)
    begin("SleepReading", session, 500)
    begin("SleepChanging", session, 300)
    begin("SleepReading", session, 300)   # behind the writer, though readers run
    begin("SleepChanging", session, 100)
    begin("SleepChanging", other, 100)    # not delayed by any of them
    replies = [reply.FromString(call.result()) for call in order]
    begun = [r.step for r in replies]
    assert begun[:2] == [0, 1] and begun[5] == 2 and begun[2:5] == [3, 4, 5]
    assert replies[0].mtp_acceptance[0] >= 2 and replies[2].mtp_acceptance[0] == 1
    assert replies[4].mtp_acceptance[0] == 1


def test_deleting_waits_for_what_runs_and_ends_what_waits(start):
    client = Sessions(start(slow=True, config="threads: 4"))
    session = client.create().session_id
    request, _ = client.messages("Forward")
    runs = client.raw("SleepChanging").future(request(session_id=session, denominator=600).SerializeToString())
    time.sleep(0.1)
    deleted = client.later("DeleteSession", session_id=session)
    time.sleep(0.1)
    waits = client.later("DescribeSession", session_id=session)
    deleted.result()
    assert runs.done() and runs.code() == CODE.OK
    assert error_of(waits.result).code() == CODE.NOT_FOUND


def test_a_lease_does_not_end_under_a_running_call(start):
    client = Sessions(start(slow=True))
    session = client.create(lease_seconds=1).session_id
    request, _ = client.messages("Forward")
    call = client.raw("SleepReading")
    call(request(session_id=session, denominator=2500).SerializeToString(), timeout=60)
    assert client("DescribeSession", session_id=session).session_id == session


def test_cancelled_calls_leave_the_queue_of_their_session(start):
    client = Sessions(start(slow=True, config="threads: 4"))
    session = client.create().session_id
    request, _ = client.messages("Forward")
    body = request(session_id=session, denominator=5000).SerializeToString()
    runs = client.raw("SleepChanging").future(body, timeout=60)
    time.sleep(0.2)
    waiting = [client.raw("SleepChanging").future(body, timeout=60) for _ in range(5)]
    time.sleep(0.2)
    for call in waiting:
        call.cancel()
    runs.cancel()  # within an op, not after five seconds
    started = time.monotonic()
    assert client("DescribeSession", session_id=session).session_id == session
    assert time.monotonic() - started < 4


def test_two_clients_train_one_session(start):
    daemon = start()
    one = Sessions(daemon)
    session = one.create().session_id
    clients = [one, Sessions(daemon)]
    failures = []

    def work(client, name):
        for i in range(5):
            try:
                client("TrainStep", session_id=session, batch=batch(i))
                client("Forward", session_id=session, batch=batch(i))
            except grpc.RpcError as error:
                failures.append(text_of(error))

    threads = [threading.Thread(target=work, args=(c, str(n))) for n, c in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and one("DescribeSession", session_id=session).step == 10


def test_forward_passes_run_beside_each_other_to_the_same_bits(start):
    client = Sessions(start(config="threads: 4"))
    session = client.create().session_id
    alone = client("Forward", session_id=session, batch=batch(), return_logits=True)
    together = [client.later("Forward", session_id=session, batch=batch(), return_logits=True) for _ in range(12)]
    assert all(call.result() == alone for call in together)
    assert alone.logits.shape == [2, 16, 64]


# ---- Killed, drained, restarted ----

KILLED = """
import sys
sys.path.insert(0, {here!r})
import grpc
from test_sessions import Sessions, batch
class Daemon:
    channel = staticmethod(lambda: grpc.insecure_channel({address!r}))
client = Sessions(Daemon)
print("ready", flush=True)
i = 0
while True:
    client("TrainStep", session_id={session!r}, step=i, request_id=f"train-{{i}}", batch=batch(i))
    print(i, flush=True)
    i += 1
"""


def test_a_client_that_is_killed_leaves_a_whole_session(start):
    daemon = start()
    client = Sessions(daemon)
    session, twin = client.create().session_id, client.create().session_id
    program = KILLED.format(here=os.path.dirname(__file__), address=daemon.address, session=session)
    for number in range(3):
        victim = subprocess.Popen([sys.executable, "-c", program.replace("i = 0", f"i = {number * 2}", 1)],
                                  stdout=subprocess.PIPE, text=True)
        assert victim.stdout.readline() == "ready\n"
        seen = int(victim.stdout.readline())
        assert seen == number * 2
        victim.kill()
        victim.wait()
        reached = client("DescribeSession", session_id=session).step
        assert reached >= seen + 1
        # What the victim may have left undone is asked for again; what it did is not done twice.
        for i in range(seen, number * 2 + 2):
            if i >= reached - 2:
                step(client, session, i)
        reached = max(reached, number * 2 + 2)
        for i in range(client("DescribeSession", session_id=twin).step, reached):
            step(client, twin, i)
        assert client.tensors(session) == client.tensors(twin)
        if reached > number * 2 + 2:  # it was faster than we: the next one begins where it stopped
            break


def test_a_killed_daemon_goes_on_from_its_checkpoint(start, tmp_path):
    data = tmp_path / "data"
    daemon = start(extra=["--data-dir", str(data)])
    client = Sessions(daemon)
    session = client.create().session_id
    for number in range(2):
        step(client, session, number)
    client("ForwardBackward", session_id=session, step=2, request_id="half", batch=batch(50))
    saved = client("SaveCheckpoint", session_id=session, name="at-2", request_id="save")
    assert saved.step == 2 and saved.bytes > 0 and saved.name == "at-2"
    assert client("SaveCheckpoint", session_id=session, name="at-2", request_id="save").replayed
    expected = [figures(step(client, session, number)) for number in range(2, 5)]
    weights = client.tensors(session)
    daemon.signal(signal.SIGKILL)
    daemon.wait()
    daemon.stop = lambda: None  # its status is the signal's

    daemon = start(extra=["--data-dir", str(data)])
    client = Sessions(daemon)
    listed, = client("ListCheckpoints").checkpoints
    assert (listed.name, listed.step, listed.digest) == ("at-2", 2, saved.digest)
    for made in (client.create(checkpoint="at-2"), client("CreateSession", checkpoint="at-2")):
        assert made.step == 2 and made.accumulated == 1 and made.model == "deepseek3-tiny"
        session = made.session_id
        again = step(client, session, 1)  # applied before the save: answered, not done
        assert again.replayed and again.step == 2
        assert client("ForwardBackward", session_id=session, step=2, request_id="half", batch=batch(50)).replayed
        assert [figures(step(client, session, number)) for number in range(2, 5)] == expected
        assert client.tensors(session) == weights
        client("LoadCheckpoint", session_id=session, name="at-2")  # and back
        assert [figures(step(client, session, number)) for number in range(2, 5)] == expected
        assert client.tensors(session) == weights


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a b", ".hidden", "x" * 200, "ä"])
def test_a_checkpoints_name_is_no_path(start, tmp_path, name):
    client = Sessions(start(extra=["--data-dir", str(tmp_path / "data")]))
    session = client.create().session_id
    for method in ("SaveCheckpoint", "LoadCheckpoint"):
        call, request = client.method(method)
        error = error_of(call, request(session_id=session, name=name))
        assert error.code() == CODE.INVALID_ARGUMENT and "name" in error.details(), text_of(error)
    call, request = client.method("LoadCheckpoint")
    assert error_of(call, request(session_id=session, name="absent")).code() == CODE.NOT_FOUND


def test_checkpoints_need_a_place(start, tmp_path):
    client = Sessions(start())
    save, request = client.method("SaveCheckpoint")
    error = error_of(save, request(session_id=client.create().session_id, name="x"))
    assert error.code() == CODE.FAILED_PRECONDITION and "data_dir" in error.details()
    place = tmp_path / "data"
    if os.geteuid() == 0:
        place.write_text("root may write everywhere, but not into a file as into a folder")
    else:
        place.mkdir(mode=0o500)
    daemon = start(extra=["--data-dir", str(place)])
    client = Sessions(daemon)
    save, request = client.method("SaveCheckpoint")
    error = error_of(save, request(session_id=client.create().session_id, name="x"))
    assert error.code() == CODE.FAILED_PRECONDITION
    assert str(place) in error.details() and str(os.geteuid()) in error.details()
    assert str(place) in daemon.log.read_text()


def test_draining_finishes_the_steps_that_run(start):
    daemon = start(slow=True)
    client = Sessions(daemon)
    session = client.create().session_id
    request, _ = client.messages("Forward")
    call = client.raw("SleepChanging").future(request(session_id=session, denominator=1500).SerializeToString())
    queued = client.later("TrainStep", session_id=session, batch=batch())
    time.sleep(0.3)
    daemon.signal()
    assert call.code() == CODE.OK and queued.result().step == 1
    assert daemon.wait() == 0


# ---- Requests of unusual shape ----

def varint(value):
    return bytes([value & 0x7f | 0x80, value >> 7]) if value > 127 else bytes([value])


def test_the_session_is_found_wherever_the_request_names_it(start):
    client = Sessions(start())
    session = client.create().session_id
    field = b"\x0a" + varint(len(session)) + session.encode()
    other = b"\x0a\x03abc"
    describe = client.raw("DescribeSession")
    unknown = b"\x7a\x02zz"  # field 15, which it does not have
    for body in (field, unknown + field, field + unknown, other + field):
        reply = client.messages("DescribeSession")[1].FromString(describe(body, timeout=60))
        assert reply.session_id == session
    reply = describe(unknown + field, timeout=60, metadata=[("octet-session", "wrong")])
    assert client.messages("DescribeSession")[1].FromString(reply).session_id == session
    for body in (field + other, unknown + other, b"\x0a\x7f" + b"x" * 127):
        assert error_of(describe, body, timeout=60).code() == CODE.NOT_FOUND
