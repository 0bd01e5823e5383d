/* The methods Quantize and Dequantize. */
#include <string.h>

#include "wire/convert.h"
#include "wire/tensor.h"

/* INTERNAL and not an assert: who makes calls is another program's business. */
enum octet_status oct_wire_compute(const struct octet_call *call, struct octet_compute *out,
                                   struct octet_error *err)
{
    *out = (struct octet_compute){call->arena, call->workers, call->cancel};
    if (!call->workers)
        return octet_fail(err, OCTET_INTERNAL, NULL, "the call was given no workers");
    return OCTET_OK;
}

static enum octet_status read_options(const struct octet_call *call,
                                      const Octet__V1__QuantizeRequest *in,
                                      struct octet_quantize_options *out, struct octet_error *err)
{
    struct octet_tiled_axis *tiled =
        OCTET_NEW_ARRAY(call->arena, in->n_tiled_axes, struct octet_tiled_axis);

    if (!tiled)
        return octet_arena_exhausted(call->arena, err);
    for (size_t i = 0; i < in->n_tiled_axes; i++)
        tiled[i] = (struct octet_tiled_axis){in->tiled_axes[i]->key, in->tiled_axes[i]->value};
    *out = (struct octet_quantize_options){
        .qtype = in->qtype,
        .calibration_method = in->calibration_method,
        .channelwise_axes = in->channelwise_axes,
        .channelwise_axis_count = in->n_channelwise_axes,
        .tiled_axes = tiled,
        .tiled_axis_count = in->n_tiled_axes,
        .scale_dtype = (enum octet_dtype)in->scale_dtype,
    };
    return OCTET_OK;
}

bool oct_wire_put_stats(octet_arena *arena, const struct octet_operand_stats *from,
                        Octet__V1__OperandStats **out)
{
    Octet__V1__OperandStats *to = oct_wire_new(arena, &octet__v1__operand_stats__descriptor);

    if (!to)
        return false;
    to->is_quantized = from->is_quantized;
    to->amax = from->amax;
    to->nonfinite = from->nonfinite;
    if (from->is_quantized) {
        to->scale_min = from->scale_min;
        to->scale_max = from->scale_max;
        to->saturated = from->saturated;
        to->underflowed = from->underflowed;
        to->destroyed = from->destroyed;
        to->sqnr_db = from->sqnr_db;
    }
    *out = to;
    return true;
}

/* Figures, if they are asked for. */
static enum octet_status add_stats(const struct octet_call *call,
                                   const Octet__V1__QuantizeRequest *in,
                                   const struct octet_compute *compute,
                                   const struct octet_array *array,
                                   const struct octet_quantized *quantized,
                                   Octet__V1__QuantizeResponse *out, struct octet_error *err)
{
    struct octet_operand_stats stats;
    enum octet_status status;

    if (in->trace_level != OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NUMERICS)
        return OCTET_OK;
    status = octet_quantized_stats(compute, array, quantized, in->qtype, &stats, err);
    if (status == OCTET_OK && !oct_wire_put_stats(call->arena, &stats, &out->stats))
        return octet_arena_exhausted(call->arena, err);
    return status;
}

enum octet_status oct_wire_quantize(const struct octet_call *call, const ProtobufCMessage *request,
                                    ProtobufCMessage **response, struct octet_error *err)
{
    const Octet__V1__QuantizeRequest *in = (const Octet__V1__QuantizeRequest *)request;
    const struct oct_wire_buffers buffers = {in->buffers, in->n_buffers};
    Octet__V1__QuantizeResponse *out =
        oct_wire_new(call->arena, &octet__v1__quantize_response__descriptor);
    struct octet_compute compute;
    struct octet_quantize_options options;
    struct octet_array array;
    struct octet_quantized quantized = {.zero_point = {.data = NULL}};
    struct oct_wire_reply reply;

    if (!out || !oct_wire_reply_init(&reply, call->arena, &buffers, OCT_WIRE_REPLY_TENSORS))
        return octet_arena_exhausted(call->arena, err);
    enum octet_status status = oct_wire_compute(call, &compute, err);
    if (status == OCTET_OK)
        status = read_options(call, in, &options, err);
    if (status == OCTET_OK)
        status = oct_wire_to_array(call->arena, in->array, &buffers, "array", &array, err);
    if (status == OCTET_OK)
        status = octet_quantize(&compute, &array, &options, &quantized, err);
    if (status == OCTET_OK)
        status = add_stats(call, in, &compute, &array, &quantized, out, err);
    if (status != OCTET_OK)
        return status;
    if (!oct_wire_put_quantized(&reply, &quantized, &out->quantized))
        return octet_arena_exhausted(call->arena, err);
    out->buffers = reply.list;
    out->n_buffers = reply.count;
    *response = &out->base;
    return OCTET_OK;
}

enum octet_status oct_wire_dequantize(const struct octet_call *call,
                                      const ProtobufCMessage *request, ProtobufCMessage **response,
                                      struct octet_error *err)
{
    const Octet__V1__DequantizeRequest *in = (const Octet__V1__DequantizeRequest *)request;
    const struct oct_wire_buffers buffers = {in->buffers, in->n_buffers};
    Octet__V1__DequantizeResponse *out =
        oct_wire_new(call->arena, &octet__v1__dequantize_response__descriptor);
    struct octet_compute compute;
    struct octet_quantized quantized;
    struct octet_array array = {.data = NULL};
    struct oct_wire_reply reply;

    if (!out || !oct_wire_reply_init(&reply, call->arena, &buffers, OCT_WIRE_REPLY_TENSORS))
        return octet_arena_exhausted(call->arena, err);
    enum octet_status status = oct_wire_compute(call, &compute, err);
    if (status == OCTET_OK)
        status = oct_wire_to_quantized(call->arena, in->quantized, &buffers, "quantized",
                                       &quantized, err);
    if (status == OCTET_OK)
        status = octet_dequantize(&compute, &quantized, (enum octet_dtype)in->dtype, &array, err);
    if (status != OCTET_OK)
        return status;
    if (!oct_wire_put_array(&reply, &array, &out->array))
        return octet_arena_exhausted(call->arena, err);
    out->buffers = reply.list;
    out->n_buffers = reply.count;
    *response = &out->base;
    return OCTET_OK;
}
