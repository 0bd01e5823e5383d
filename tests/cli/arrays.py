"""Safetensors files for the tests, read and written without the library under test."""
import json
import struct

BYTES = {"F32": 4, "I32": 4, "I64": 8, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1, "F4": 0.5, "F64": 8}


def f32(*values):
    return struct.pack(f"<{len(values)}f", *values)


def i32(*values):
    return struct.pack(f"<{len(values)}i", *values)


def bf16(*values):
    """Exact for values that bfloat16 has."""
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def floats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def write(path, arrays, metadata=None):
    """arrays: {name: (dtype, shape, bytes)}"""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, content) in arrays.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return str(path)


def read(path):
    """({name: (dtype, shape, bytes)}, metadata); checks what the format promises."""
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8:8 + length]), content[8 + length:]
    metadata, arrays, reached = header.pop("__metadata__", {}), {}, 0
    assert content[8:9] == b"{" and length % 8 == 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        size = BYTES[entry["dtype"]]
        for n in entry["shape"]:
            size *= n
        assert begin == reached and end - begin == size and begin % max(1, BYTES[entry["dtype"]]) == 0, name
        arrays[name], reached = (entry["dtype"], entry["shape"], data[begin:end]), end
    assert reached == len(data)
    return arrays, metadata
