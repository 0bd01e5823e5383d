/* The list of methods. A new one is a function (declared in convert.h) and a row here. */
#include "wire/methods.h"

#include <string.h>

#include "wire/convert.h"

#define ROW(method, stem, function, constant, tensors)                                             \
    {                                                                                              \
#method, &octet__v1__##stem##_request__descriptor,                                         \
            &octet__v1__##stem##_response__descriptor, function, constant, tensors                 \
    }

const struct octet_method octet_methods[] = {
    ROW(GetServerInfo, get_server_info, oct_wire_get_server_info, true, false),
    ROW(Trace, trace, oct_wire_trace, false, false),
    ROW(Check, check, oct_wire_check, false, false),
    ROW(Inspect, inspect, oct_wire_inspect, false, false),
    ROW(Quantize, quantize, oct_wire_quantize, false, true),
    ROW(Dequantize, dequantize, oct_wire_dequantize, false, true),
    ROW(DotGeneral, dot_general, oct_wire_dot_general, false, true),
    ROW(RaggedDot, ragged_dot, oct_wire_ragged_dot, false, true),
};
const size_t octet_method_count = sizeof octet_methods / sizeof *octet_methods;

const struct octet_method *octet_method_find(const char *name)
{
    for (size_t i = 0; i < octet_method_count; i++)
        if (strcmp(octet_methods[i].name, name) == 0)
            return &octet_methods[i];
    return NULL;
}
