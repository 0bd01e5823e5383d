"""What a client sees that knows gRPC's standard services and API.md's names, and has none of our files."""
import pathlib
import struct
import subprocess
import threading
import time

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

TLS = pathlib.Path(__file__).parent / "tls"
CODE = grpc.StatusCode


class Client:
    """octet.v1.Octet through reflection alone."""

    def __init__(self, channel):
        self.channel = channel
        database = ProtoReflectionDescriptorDatabase(channel)
        self.services = database.get_services()
        self.pool = descriptor_pool.DescriptorPool(database)
        self.service = self.pool.FindServiceByName("octet.v1.Octet")

    def method(self, name):
        method = self.service.FindMethodByName(name)
        request = message_factory.GetMessageClass(method.input_type)
        reply = message_factory.GetMessageClass(method.output_type)
        call = self.channel.unary_unary(f"/octet.v1.Octet/{name}",
                                        request_serializer=request.SerializeToString,
                                        response_deserializer=reply.FromString)
        return call, request


def error_of(call, *arguments, **options):
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **options)
    return caught.value


def test_a_client_that_only_reflects_can_call(start):
    daemon = start()
    client = Client(daemon.channel())
    assert set(client.services) == {
        "octet.v1.Octet", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection"}
    assert {"GetServerInfo", "Trace"} <= {method.name for method in client.service.methods}
    info, request = client.method("GetServerInfo")
    reply, call = info.with_call(request(), metadata=[("x-request-id", "ci-1")])
    assert reply.version == "0.1.0" and reply.git_commit
    assert reply.limits.max_message_bytes == 1 << 30
    assert reply.limits.config_request_bytes == 4 << 20
    assert dict(call.initial_metadata())["octet-request-id"] == "ci-1"
    assert dict(call.trailing_metadata())["octet-request-id"] == "ci-1"


def test_trace_through_reflection(start):
    trace, request = Client(start().channel()).method("Trace")
    asked = request()
    asked.model.name = "deepseek3-671b"
    asked.model.overrides["quantization"] = "fp8_full"
    asked.model.overrides["mtp_num_layers"] = "1"
    asked.against.CopyFrom(asked.model)
    asked.model.overrides["quantize_mtp"] = "true"
    reply = trace(asked, timeout=60)
    assert reply.trace.interceptions and reply.parameters > 671e9
    mtp = [line for line in reply.trace.interceptions if line.module.startswith("mtp_block/")]
    dots = [line for line in mtp if line.op.startswith("dot_general")]
    assert dots and all(line.rule >= 0 for line in dots)
    assert {change.module.split("/")[0] for change in reply.differences} == {"mtp_block"}
    assert reply.trace.coverage.flops_quantized > reply.against.coverage.flops_quantized > 0


@pytest.mark.parametrize("fields, code, named", [
    ({"name": "deepseek9"}, CODE.NOT_FOUND, "model.name"),
    ({"name": "deepseek3-671b", "overrides": {"quantisation": "fp8"}}, CODE.INVALID_ARGUMENT,
     "model.overrides[quantisation]"),
    ({"yaml": "base_emb_dim: [not a number]\n"}, CODE.INVALID_ARGUMENT, "model.yaml"),
])
def test_trace_names_the_field_at_fault(start, fields, code, named):
    trace, request = Client(start().channel()).method("Trace")
    error = error_of(trace, request(model=fields), timeout=20)
    assert error.code() == code and named in error.details()
    assert dict(error.trailing_metadata())["octet-request-id"]


def test_a_trace_that_nobody_waits_for_stops(start):
    """Unrolled, the largest model is thousands of nodes: the work must end with the deadline."""
    daemon = start(extra=["--threads", "1"])
    client = Client(daemon.channel())
    trace, request = client.method("Trace")
    info, nothing = client.method("GetServerInfo")
    for layers in range(3000, 3020):
        asked = request()
        asked.model.name = "deepseek3-671b"
        asked.model.overrides["scan_layers"] = "false"
        asked.model.overrides["base_num_decoder_layers"] = str(layers)
        error = None
        try:
            trace(asked, timeout=0.01)
        except grpc.RpcError as caught:
            error = caught
        assert error is None or error.code() == CODE.DEADLINE_EXCEEDED
    begun = time.monotonic()
    assert info(nothing(), timeout=30).version
    assert time.monotonic() - begun < 10


F32, F8_E4M3FN, S32 = 1, 4, 10
FP8_RULE = {"module_path": "decoder/.*", "weight_qtype": "float8_e4m3fn", "act_qtype": "float8_e4m3fn",
            "bwd_qtype": "float8_e5m2"}


def tensor(shape, values, form="f", dtype=F32):
    return {"dtype": dtype, "shape": shape, "data": struct.pack(f"<{len(values)}{form}", *values)}


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def test_products_through_reflection(start):
    client = Client(start().channel())
    dot, request = client.method("DotGeneral")
    asked = request(
        lhs={"tensor": tensor([2, 3], [1, 2, 3, 4, 5, 6])},
        rhs={"tensor": tensor([3, 2], [1, 0, 0, 1, 1, 1])},
        dimension_numbers={"lhs_contracting": [1], "rhs_contracting": [0]},
        cotangent=tensor([2, 2], [1, 1, 1, 1]), module_path="decoder/x", trace_level=2)
    reply = dot(asked)
    assert floats(reply.out.data) == (4, 5, 10, 11)  # no rule: plain f32
    assert floats(reply.lhs_grad.data) == (1, 1, 2, 1, 1, 2)
    assert reply.trace.interceptions[0].rule == -1
    asked.rules.add(**FP8_RULE)
    reply = dot(asked)
    line = reply.trace.interceptions[0]
    assert (line.op, line.rule, line.flops, line.accumulation) == ("dot_general0", 0, 24, "EXACT_ORDER")
    assert line.lhs.is_quantized and line.lhs.amax == 6 and len(line.digest) == 32
    assert floats(reply.out.data) == pytest.approx((4, 5, 10, 11), rel=0.05)

    gmm, request = client.method("RaggedDot")
    reply = gmm(request(
        lhs={"tensor": tensor([3, 2], [1, 2, 3, 4, 5, 6])},
        rhs={"tensor": tensor([2, 2, 1], [1, 1, 10, 10])},
        group_sizes=tensor([2], [2, 1], "i", S32), trace_level=1))
    assert floats(reply.out.data) == (3, 7, 110)
    assert reply.trace.interceptions[0].op == "gmm"


@pytest.mark.parametrize("change, named", [
    ({"lhs": {"tensor": {"dtype": F32, "shape": [2, 3], "data": bytes(20)}}}, "lhs.tensor.data"),
    ({"lhs": {"tensor": {"dtype": F32, "shape": [2, -3]}}}, "lhs.tensor.shape"),
    ({"lhs": {"tensor": {"dtype": F32, "shape": [1 << 40, 1 << 40]}}}, "lhs.tensor.shape"),
    ({"lhs": {"tensor": {"dtype": F32, "shape": [2, 3], "buffer": 1}}}, "lhs.tensor.buffer"),
    ({"lhs": {"tensor": {"shape": [2, 3]}}}, "lhs.tensor.dtype"),
    ({"lhs": {"tensor": tensor([3, 2], [0] * 6)}}, "rhs.shape"),
    ({"rules": [{**FP8_RULE, "act_qtype": "float9"}]}, "rules[0].act_qtype"),
    ({"rules": [{**FP8_RULE, "act_calibration_method": "best"}]}, "rules[0].act_calibration_method"),
    ({"out_dtype": S32}, "out_dtype"),
    ({"cotangent": tensor([2, 3], [0] * 6)}, "cotangent.shape"),
])
def test_products_name_the_field_at_fault(start, change, named):
    dot, request = Client(start().channel()).method("DotGeneral")
    fields = {"lhs": {"tensor": tensor([2, 3], [0] * 6)}, "rhs": {"tensor": tensor([3, 2], [0] * 6)},
              "dimension_numbers": {"lhs_contracting": [1], "rhs_contracting": [0]},
              "module_path": "decoder/x", **change}
    error = error_of(dot, request(**fields), timeout=20)
    assert error.code() == CODE.INVALID_ARGUMENT
    assert f"field '{named}'" in error.details(), error.details()


def test_a_tensor_of_a_session_is_not_found(start):
    dot, request = Client(start().channel()).method("DotGeneral")
    error = error_of(dot, request(lhs={"ref": {"session_id": "s", "name": "kernel"}},
                                  rhs={"tensor": tensor([1], [0])}, dimension_numbers={}))
    assert error.code() == CODE.NOT_FOUND and "lhs.ref" in error.details()


def test_64_mib_there_and_back_in_buffers(start):
    channel = start().channel(options=[("grpc.max_receive_message_length", -1),
                                       ("grpc.max_send_message_length", -1)])
    client = Client(channel)
    quantize, request = client.method("Quantize")
    rows, columns = 4096, 4096
    row = struct.pack("<4096f", *(float(i % 449) for i in range(columns)))
    reply = quantize(request(array={"dtype": F32, "shape": [rows, columns], "buffer": 1},
                             qtype="float8_e4m3fn", channelwise_axes=[0], buffers=[row * rows]),
                     timeout=60)
    codes = reply.buffers[reply.quantized.qvalue.buffer - 1]
    assert len(codes) == rows * columns and codes == codes[:columns] * rows
    assert floats(reply.quantized.scale.data) == (1.0,) * rows  # 448 / 448; small, so not in buffers
    back, request = client.method("Dequantize")
    again = back(request(quantized=reply.quantized, buffers=reply.buffers), timeout=60)
    data = again.buffers[again.array.buffer - 1]
    assert len(data) == rows * columns * 4 and data == data[:4 * columns] * rows
    assert floats(data[:4 * columns])[:17] == tuple(range(17))  # E4M3 has them all


def test_a_product_that_nobody_waits_for_stops(start):
    daemon = start(extra=["--threads", "1", "--kernels", "scalar"])
    client = Client(daemon.channel(options=[("grpc.max_send_message_length", -1)]))
    dot, request = client.method("DotGeneral")
    side = 3000
    asked = request(lhs={"tensor": {"dtype": F32, "shape": [side, side], "buffer": 1}},
                    rhs={"tensor": {"dtype": F32, "shape": [side, side], "buffer": 1}},
                    dimension_numbers={"lhs_contracting": [1], "rhs_contracting": [0]},
                    module_path="decoder/x", rules=[FP8_RULE],
                    buffers=[struct.pack("<f", 0.5) * (side * side)])
    error = error_of(dot, asked, timeout=1)
    assert error.code() == CODE.DEADLINE_EXCEEDED
    begun = time.monotonic()
    small = request(lhs={"tensor": tensor([1, 1], [2])}, rhs={"tensor": tensor([1, 1], [3])},
                    dimension_numbers={"lhs_contracting": [1], "rhs_contracting": [0]})
    assert floats(dot(small, timeout=30).out.data) == (6,)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_answers_every_kind_of_question(start, version):
    channel = start().channel()
    ask = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString)
    question = reflection_pb2.ServerReflectionRequest
    questions = [
        question(list_services="*"),
        question(file_by_filename="octet/v1/octet.proto"),
        question(file_by_filename="octet/v1/none.proto"),
        question(file_containing_symbol="octet.v1.Octet"),
        question(file_containing_symbol="octet.v1.Octet.Trace"),
        question(file_containing_symbol="octet.v1.TraceRequest"),
        question(file_containing_symbol="octet.v1.DataType"),
        question(file_containing_symbol="octet.v1.Nothing"),
        question(file_containing_extension=reflection_pb2.ExtensionRequest(
            containing_type="octet.v1.TraceRequest", extension_number=1000)),
        question(all_extension_numbers_of_type="octet.v1.TraceRequest"),
        question(all_extension_numbers_of_type="octet.v1.Nothing"),
        question(host="a.host", list_services=""),
    ]
    replies = list(ask(iter(questions), timeout=20))
    assert [reply.original_request for reply in replies] == questions
    kinds = [reply.WhichOneof("message_response") for reply in replies]
    assert kinds == ["list_services_response", "file_descriptor_response", "error_response"] + \
        ["file_descriptor_response"] * 4 + ["error_response", "error_response",
                                            "all_extension_numbers_response", "error_response",
                                            "list_services_response"]
    for reply in replies:
        if reply.WhichOneof("message_response") == "error_response":
            assert reply.error_response.error_code == CODE.NOT_FOUND.value[0]
        for raw in reply.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(raw)
            assert file.name == "octet/v1/octet.proto" and file.package == "octet.v1"
    assert replies[-1].valid_host == "a.host"


def test_a_reflection_question_without_a_kind_is_invalid(start):
    stub = reflection_pb2_grpc.ServerReflectionStub(start().channel())
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest()]), timeout=10)
    assert error_of(lambda: list(call)).code() == CODE.INVALID_ARGUMENT


def test_health_check(start):
    health = health_pb2_grpc.HealthStub(start().channel())
    for service in ("", "octet.v1.Octet"):
        reply = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
    error = error_of(health.Check, health_pb2.HealthCheckRequest(service="octet.v1.Nothing"))
    assert error.code() == CODE.NOT_FOUND and "octet.v1.Nothing" in error.details()


class Watcher(threading.Thread):
    def __init__(self, channel, service):
        super().__init__(daemon=True)
        self.call = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service=service))
        self.heard = []
        self.ended = None
        self.start()

    def run(self):
        try:
            for reply in self.call:
                self.heard.append((reply.status, time.monotonic()))
            self.ended = CODE.OK
        except grpc.RpcError as error:
            self.ended = error.code()

    def statuses(self):
        return [status for status, _ in self.heard]

    def wait_for(self, count):
        until = time.monotonic() + 20
        while len(self.heard) < count and time.monotonic() < until:
            time.sleep(0.01)
        return self.statuses()


def test_watchers_hear_of_the_drain_before_calls_are_refused(start):
    daemon = start(slow=True, config="drain: {delay_ms: 1000}\n")
    channel = daemon.channel()
    watchers = [Watcher(channel, service) for service in ("", "octet.v1.Octet", "unheard.of")]
    assert [watcher.wait_for(1) for watcher in watchers] == [[1], [1], [3]]
    client = Client(channel)
    trace, request = client.method("Trace")
    sleep = channel.unary_unary("/octet.v1.Octet/Sleep", request_serializer=request.SerializeToString)
    running = [sleep.future(request(batch_size=1500)) for _ in range(3)]
    time.sleep(0.3)
    daemon.signal()
    assert [watcher.wait_for(2) for watcher in watchers[:2]] == [[1, 2], [1, 2]]
    assert error_of(client.method("GetServerInfo")[0], client.method("GetServerInfo")[1]()).code() \
        == CODE.UNAVAILABLE
    assert [len(call.result()) > 0 for call in running] == [True] * 3
    for watcher in watchers:
        watcher.join(20)
        assert watcher.ended == CODE.OK
    assert watchers[2].statuses() == [3]
    assert daemon.wait() == 0


def test_a_watcher_that_leaves_is_forgotten(start):
    daemon = start(config="limits: {control_calls: 20}\n")
    channel = daemon.channel()
    for _ in range(100):
        watcher = Watcher(channel, "")
        watcher.wait_for(1)
        watcher.call.cancel()
        watcher.join(10)
    assert health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest()).status == 1


def test_too_many_streams_are_refused(start):
    daemon = start(config="limits: {control_calls: 4}\n")
    channel = daemon.channel()
    watchers = [Watcher(channel, "") for _ in range(4)]
    assert [watcher.wait_for(1) for watcher in watchers] == [[1]] * 4
    extra = Watcher(channel, "")
    extra.join(10)
    assert extra.ended == CODE.RESOURCE_EXHAUSTED
    for watcher in watchers:
        watcher.call.cancel()


def test_compressed_requests_are_refused(start):
    channel = start().channel()
    call = channel.unary_unary("/octet.v1.Octet/GetServerInfo")
    error = error_of(call, b"\xfa\x01\x80\x80\x04" + bytes(65536), compression=grpc.Compression.Gzip)
    assert error.code() == CODE.UNIMPLEMENTED
    assert call(b"")


def test_the_limit_on_messages_is_told_and_held(start):
    daemon = start(config="limits: {max_message_bytes: 2MiB, config_request_bytes: 1MiB}\n")
    client = Client(daemon.channel())
    info, request = client.method("GetServerInfo")
    limits = info(request()).limits
    assert (limits.max_message_bytes, limits.config_request_bytes) == (2 << 20, 1 << 20)
    raw = client.channel.unary_unary("/octet.v1.Octet/GetServerInfo")
    for size in (limits.config_request_bytes + 1, limits.max_message_bytes + 1):
        error = error_of(raw, bytes(size))
        assert error.code() == CODE.RESOURCE_EXHAUSTED
        assert str(size) in error.details()
    assert info(request()).version


def tls_credentials(certificate=None, authority="ca.pem"):
    read = lambda name: (TLS / name).read_bytes()
    if certificate:
        return grpc.ssl_channel_credentials(read(authority), read(f"{certificate}.key"),
                                            read(f"{certificate}.pem"))
    return grpc.ssl_channel_credentials(read(authority))


def tls_config(mutual):
    text = f"tls: {{certificate: {TLS}/server.pem, key: {TLS}/server.key"
    return text + (f", client_ca: {TLS}/ca.pem}}\n" if mutual else "}\n")


def status_of(channel):
    try:
        channel.unary_unary("/octet.v1.Octet/GetServerInfo")(b"", timeout=10)
        return CODE.OK
    except grpc.RpcError as error:
        return error.code()


def probe(request, daemon):
    return subprocess.run(
        [request.config.getoption("--octetd"), "--health", "--listen", daemon.address, "--config",
         str(daemon.log.parent / "octetd.yml")], capture_output=True, text=True, timeout=30)


def test_tls(start, request):
    daemon = start(config=tls_config(mutual=False))
    assert status_of(daemon.channel(tls_credentials())) == CODE.OK
    assert status_of(daemon.channel()) == CODE.UNAVAILABLE
    assert status_of(daemon.channel(tls_credentials(authority="stranger.pem"))) == CODE.UNAVAILABLE
    assert probe(request, daemon).returncode == 0


def test_mutual_tls(start, request):
    daemon = start(config=tls_config(mutual=True))
    assert status_of(daemon.channel(tls_credentials("client"))) == CODE.OK
    assert status_of(daemon.channel(tls_credentials())) == CODE.UNAVAILABLE
    assert status_of(daemon.channel(tls_credentials("stranger"))) == CODE.UNAVAILABLE
    asked = probe(request, daemon)
    assert asked.returncode == 0, asked


def test_tls_files_that_do_not_fit_are_refused(start, request, tmp_path):
    config = tmp_path / "broken.yml"
    for key in ("client.key", "README.md", "missing.key"):
        config.write_text(f"tls: {{certificate: {TLS}/server.pem, key: {TLS}/{key}}}\n")
        ended = subprocess.run([request.config.getoption("--octetd"), "--listen", "127.0.0.1:0",
                                "--config", str(config)], capture_output=True, text=True, timeout=30)
        assert ended.returncode == 1 and "tls" in ended.stderr.lower(), ended


def test_tokens(start, tmp_path):
    secret = tmp_path / "tokens"
    secret.write_text("# for tests\n0123456789abcdef0123\n")
    daemon = start(config=f"auth: {{token_file: {secret}}}\n")
    channel = daemon.channel()
    info = channel.unary_unary("/octet.v1.Octet/GetServerInfo")
    assert info(b"", metadata=[("authorization", "Bearer 0123456789abcdef0123")])
    for header in (None, "Bearer 0123456789abcdef012", "0123456789abcdef0123"):
        metadata = [("authorization", header)] if header else None
        assert error_of(info, b"", metadata=metadata).code() == CODE.UNAUTHENTICATED
    reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    assert error_of(lambda: list(reflect(iter([question])))).code() == CODE.UNAUTHENTICATED
    health = health_pb2_grpc.HealthStub(channel)
    assert health.Check(health_pb2.HealthCheckRequest()).status == 1


def test_pings_within_the_allowed_interval_keep_a_quiet_call(start):
    """The default allows a ping each 5 s; gRPC's own would end this connection at the third."""
    channel = start().channel(options=[("grpc.keepalive_time_ms", 5500),
                                       ("grpc.keepalive_permit_without_calls", 1),
                                       ("grpc.http2.max_pings_without_data", 0)])
    watcher = Watcher(channel, "")
    assert watcher.wait_for(1) == [1]
    watcher.join(29)
    assert watcher.is_alive() and watcher.ended is None
    watcher.call.cancel()


def test_too_many_pings_are_answered_with_goodbye(start):
    channel = start(config="keepalive: {client_interval_ms: 60000}\n").channel(options=[
        ("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0)])
    watcher = Watcher(channel, "")
    watcher.join(20)
    assert watcher.ended == CODE.UNAVAILABLE


def test_unix_socket(start, tmp_path):
    path = tmp_path / "octetd.sock"
    daemon = start(listen=f"unix:{path}")
    assert daemon.address == f"unix:{path}"
    assert status_of(daemon.channel()) == CODE.OK


def test_the_first_line(start):
    daemon = start()
    assert daemon.first_line == f"octetd 0.1.0 listening on {daemon.address}\n"
