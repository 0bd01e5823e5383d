/* The list of methods. A new one is a function (declared in convert.h) and a row here. */
#include "wire/methods.h"

#include <string.h>

#include "wire/convert.h"

#define TYPED(method, in, out, function, ...)                                                      \
    {                                                                                              \
        .name = #method, .request = &octet__v1__##in##__descriptor,                                \
        .response = &octet__v1__##out##__descriptor, .run = function, __VA_ARGS__                  \
    }
#define ROW(method, stem, ...)                                                                     \
    TYPED(method, stem##_request, stem##_response, oct_wire_##stem, __VA_ARGS__)
#define READS .access = OCTET_ACCESS_READ
#define CHANGES .access = OCTET_ACCESS_CHANGE
#define TENSORS .takes_tensors = true

const struct octet_method octet_methods[] = {
    ROW(GetServerInfo, get_server_info, .is_constant = true),
    ROW(Trace, trace, .is_constant = false),
    ROW(Check, check, .is_constant = false),
    ROW(Inspect, inspect, .is_constant = false),
    ROW(Quantize, quantize, TENSORS),
    ROW(Dequantize, dequantize, TENSORS),
    ROW(DotGeneral, dot_general, TENSORS),
    ROW(RaggedDot, ragged_dot, TENSORS),
    TYPED(CreateSession, create_session_request, session, oct_wire_create_session, TENSORS),
    TYPED(DescribeSession, describe_session_request, session, oct_wire_describe_session, READS),
    ROW(ListSessions, list_sessions, .is_light = true),
    ROW(KeepAlive, keep_alive, .is_light = true),
    ROW(DeleteSession, delete_session, .access = OCTET_ACCESS_END),
    ROW(PutTensors, put_tensors, CHANGES, TENSORS, .shape = OCTET_METHOD_UPLOAD),
    ROW(GetTensors, get_tensors, READS, .shape = OCTET_METHOD_DOWNLOAD),
    ROW(Forward, forward, READS, TENSORS),
    ROW(ForwardBackward, forward_backward, CHANGES, TENSORS),
    ROW(OptimStep, optim_step, CHANGES, TENSORS),
    ROW(TrainStep, train_step, CHANGES, TENSORS),
    TYPED(SaveCheckpoint, save_checkpoint_request, checkpoint, oct_wire_save_checkpoint, CHANGES),
    TYPED(LoadCheckpoint, load_checkpoint_request, checkpoint, oct_wire_load_checkpoint, CHANGES),
    ROW(ListCheckpoints, list_checkpoints, .is_constant = false),
};
const size_t octet_method_count = sizeof octet_methods / sizeof *octet_methods;

const struct octet_method *octet_method_find(const char *name)
{
    for (size_t i = 0; i < octet_method_count; i++)
        if (strcmp(octet_methods[i].name, name) == 0)
            return &octet_methods[i];
    return NULL;
}
