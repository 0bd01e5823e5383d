/* See tensor.h. Numbers are little-endian on the wire and in arrays. */
#include "wire/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "wire/convert.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "data is used as it lies on the wire");

/* ---- Requests ---- */

static enum octet_status read_shape(const Octet__V1__Tensor *tensor, struct octet_array *out,
                                    struct octet_error *err)
{
    char text[200];

    if (tensor->n_shape > OCTET_ARRAY_RANK_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "shape",
                          "has %zu dimensions, at most %d are supported", tensor->n_shape,
                          OCTET_ARRAY_RANK_MAX);
    out->rank = (int32_t)tensor->n_shape;
    for (size_t i = 0; i < tensor->n_shape; i++) {
        out->dim[i] = tensor->shape[i];
        if (tensor->shape[i] < 0)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "shape",
                              "dimension %zu is %" PRId64 ", which is negative", i,
                              tensor->shape[i]);
    }
    if (octet_array_bytes(out) == INT64_MAX)
        return octet_fail(
            err, OCTET_INVALID_ARGUMENT, "shape", "%s of %s has more bytes than can be counted",
            octet_array_shape_text(out, text, sizeof text), octet_dtype_name(out->dtype));
    return OCTET_OK;
}

/* Where the numbers lie: in the message or in one of its buffers. */
static enum octet_status find_data(const Octet__V1__Tensor *tensor,
                                   const struct oct_wire_buffers *buffers,
                                   const struct octet_array *array, ProtobufCBinaryData *data,
                                   struct octet_error *err)
{
    int64_t wanted = octet_array_bytes(array);
    char text[200], where[32] = "data";

    if (tensor->buffer == 0) {
        *data = tensor->data;
    } else if (tensor->data.len) {
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "buffer",
                          "%d is set, and data has %zu bytes; a tensor has one of them",
                          tensor->buffer, tensor->data.len);
    } else if (tensor->buffer < 0 || (size_t)tensor->buffer > buffers->count) {
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "buffer",
                          "%d is none of the message's %zu buffers (1 is the first)",
                          tensor->buffer, buffers->count);
    } else {
        *data = buffers->list[tensor->buffer - 1];
        snprintf(where, sizeof where, "buffers[%d]", tensor->buffer - 1);
    }
    if (data->len == (size_t)wanted)
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, tensor->buffer ? "buffer" : "data",
                      "%s has %zu bytes, but shape %s of %s takes %" PRId64, where, data->len,
                      octet_array_shape_text(array, text, sizeof text),
                      octet_dtype_name(array->dtype), wanted);
}

/* A 4-bit code has a byte of its own, which can hold more than a code. */
static enum octet_status check_codes(const struct octet_array *array, struct octet_error *err)
{
    const uint8_t *codes = array->data;
    size_t count = (size_t)octet_array_elements(array);
    bool is_signed =
        array->dtype == OCTET_DTYPE_S4; /* then with its sign, or without (ml_dtypes) */
    char field[40];

    if (array->dtype != OCTET_DTYPE_S4 && array->dtype != OCTET_DTYPE_F4_E2M1FN)
        return OCTET_OK;
    for (size_t i = 0; i < count; i++) {
        if (codes[i] < 16 || (is_signed && codes[i] >= 0xf8))
            continue;
        snprintf(field, sizeof field, "data[%zu]", i);
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "%d is not a value of %s (%s)",
                          is_signed ? (int8_t)codes[i] : codes[i], octet_dtype_name(array->dtype),
                          is_signed ? "-8 to 7" : "0 to 15");
    }
    return OCTET_OK;
}

static enum octet_status read_array(octet_arena *arena, const Octet__V1__Tensor *tensor,
                                    const struct oct_wire_buffers *buffers, struct octet_array *out,
                                    struct octet_error *err)
{
    ProtobufCBinaryData data = {0, NULL};
    enum octet_status status;

    *out = (struct octet_array){.dtype = (enum octet_dtype)tensor->dtype};
    size_t item = octet_dtype_bytes(out->dtype);
    if (item == 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "dtype", "is not set");
    status = read_shape(tensor, out, err);
    if (status == OCTET_OK)
        status = find_data(tensor, buffers, out, &data, err);
    if (status != OCTET_OK)
        return status;
    out->data = data.data;
    /* Where a buffer starts in the request is chance. */
    if (data.len == 0 || (uintptr_t)data.data % item != 0) {
        out->data = octet_arena_alloc_unset(arena, data.len);
        if (!out->data)
            return octet_arena_exhausted(arena, err);
        if (data.len)
            memcpy(out->data, data.data, data.len);
    }
    return check_codes(out, err);
}

enum octet_status oct_wire_to_array(octet_arena *arena, const Octet__V1__Tensor *tensor,
                                    const struct oct_wire_buffers *buffers, const char *field,
                                    struct octet_array *out, struct octet_error *err)
{
    if (!tensor)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "is missing");
    enum octet_status status = read_array(arena, tensor, buffers, out, err);
    if (status == OCTET_INVALID_ARGUMENT)
        octet_error_within(err, field);
    return status;
}

static enum octet_status read_quantized(octet_arena *arena,
                                        const Octet__V1__QuantizedTensor *quantized,
                                        const struct oct_wire_buffers *buffers,
                                        struct octet_quantized *out, struct octet_error *err)
{
    *out = (struct octet_quantized){.zero_point = {.data = NULL}};
    enum octet_status status =
        oct_wire_to_array(arena, quantized->qvalue, buffers, "qvalue", &out->qvalue, err);
    if (status == OCTET_OK)
        status = oct_wire_to_array(arena, quantized->scale, buffers, "scale", &out->scale, err);
    if (status == OCTET_OK && quantized->zero_point)
        status = oct_wire_to_array(arena, quantized->zero_point, buffers, "zero_point",
                                   &out->zero_point, err);
    return status;
}

enum octet_status oct_wire_to_quantized(octet_arena *arena,
                                        const Octet__V1__QuantizedTensor *quantized,
                                        const struct oct_wire_buffers *buffers, const char *field,
                                        struct octet_quantized *out, struct octet_error *err)
{
    if (!quantized)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "is missing");
    enum octet_status status = read_quantized(arena, quantized, buffers, out, err);
    if (status == OCTET_INVALID_ARGUMENT)
        octet_error_within(err, field);
    return status;
}

static enum octet_status read_operand(octet_arena *arena, const Octet__V1__Operand *operand,
                                      const struct oct_wire_buffers *buffers,
                                      struct octet_operand *out, struct octet_error *err)
{
    *out = (struct octet_operand){.is_quantized = false};
    switch (operand->kind_case) {
    case OCTET__V1__OPERAND__KIND_TENSOR:
        return oct_wire_to_array(arena, operand->tensor, buffers, "tensor", &out->array, err);
    case OCTET__V1__OPERAND__KIND_QUANTIZED:
        out->is_quantized = true;
        return oct_wire_to_quantized(arena, operand->quantized, buffers, "quantized",
                                     &out->quantized, err);
    case OCTET__V1__OPERAND__KIND_REF:
        return octet_fail(err, OCTET_NOT_FOUND, "ref",
                          "there is no session '%.100s': this server holds no sessions; send the "
                          "tensor itself",
                          operand->ref->session_id);
    default:
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "has none of tensor, quantized and ref");
    }
}

enum octet_status oct_wire_to_operand(octet_arena *arena, const Octet__V1__Operand *operand,
                                      const struct oct_wire_buffers *buffers, const char *field,
                                      struct octet_operand *out, struct octet_error *err)
{
    if (!operand)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "is missing");
    enum octet_status status = read_operand(arena, operand, buffers, out, err);
    if (status == OCTET_INVALID_ARGUMENT || status == OCTET_NOT_FOUND)
        octet_error_within(err, field);
    return status;
}

/* ---- Replies ---- */

bool oct_wire_reply_init(struct oct_wire_reply *reply, octet_arena *arena,
                         const struct oct_wire_buffers *request, size_t room)
{
    *reply =
        (struct oct_wire_reply){.arena = arena, .uses_buffers = request->count > 0, .room = room};
    reply->list = OCTET_NEW_ARRAY(arena, room, ProtobufCBinaryData);
    return reply->list != NULL;
}

bool oct_wire_put_array(struct oct_wire_reply *reply, const struct octet_array *array,
                        Octet__V1__Tensor **out)
{
    size_t rank = (size_t)array->rank;

    *out = NULL;
    if (!array->data)
        return true;
    Octet__V1__Tensor *tensor = oct_wire_new(reply->arena, &octet__v1__tensor__descriptor);
    int64_t *shape = OCTET_NEW_ARRAY(reply->arena, rank, int64_t);
    if (!tensor || !shape)
        return false;
    if (rank)
        memcpy(shape, array->dim, rank * sizeof *shape);
    tensor->dtype = (Octet__V1__DataType)array->dtype;
    tensor->shape = shape;
    tensor->n_shape = rank;
    const ProtobufCBinaryData data = {(size_t)octet_array_bytes(array), array->data};
    if (reply->uses_buffers && data.len > OCT_WIRE_BUFFER_BYTES && reply->count < reply->room) {
        reply->list[reply->count++] = data;
        tensor->buffer = (int32_t)reply->count;
    } else {
        tensor->data = data;
    }
    *out = tensor;
    return true;
}

bool oct_wire_put_quantized(struct oct_wire_reply *reply, const struct octet_quantized *quantized,
                            Octet__V1__QuantizedTensor **out)
{
    Octet__V1__QuantizedTensor *message =
        oct_wire_new(reply->arena, &octet__v1__quantized_tensor__descriptor);

    *out = message;
    return message && oct_wire_put_array(reply, &quantized->qvalue, &message->qvalue) &&
           oct_wire_put_array(reply, &quantized->scale, &message->scale) &&
           oct_wire_put_array(reply, &quantized->zero_point, &message->zero_point);
}
