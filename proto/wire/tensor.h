/* Tensors: messages -> arrays and back.
 *
 * For: every check that an array needs before the library may look at it: dtype, shape, length,
 * alignment, codes in range, which buffer. Not for: what an operation wants of its operands; that
 * is the library's to say, in the same names.
 *
 * Life: an array made here points into the message (or into the bytes that the message's buffers
 * lie in) where it can, else into the arena; a message made here points to the array's data. */
#ifndef OCTET_WIRE_TENSOR_H
#define OCTET_WIRE_TENSOR_H

#include "octet/v1/octet.pb-c.h"
#include "wire/methods.h"

/* A request's `buffers`. Several tensors may share one. */
struct oct_wire_buffers {
    const ProtobufCBinaryData *list;
    size_t count;
};

/* Errors: INVALID_ARGUMENT with field "FIELD.dtype", "FIELD.shape", "FIELD.data", "FIELD.data[7]",
 * "FIELD.buffer", or "FIELD" for one that is missing; RESOURCE_EXHAUSTED. */
enum octet_status oct_wire_to_array(octet_arena *arena, const Octet__V1__Tensor *tensor,
                                    const struct oct_wire_buffers *buffers, const char *field,
                                    struct octet_array *out,
                                    struct octet_error *err) OCTET_MUST_CHECK;
/* "FIELD.qvalue.dtype" and so on. */
enum octet_status oct_wire_to_quantized(octet_arena *arena,
                                        const Octet__V1__QuantizedTensor *quantized,
                                        const struct oct_wire_buffers *buffers, const char *field,
                                        struct octet_quantized *out,
                                        struct octet_error *err) OCTET_MUST_CHECK;
/* "FIELD.tensor.dtype", "FIELD.quantized.scale.shape"; NOT_FOUND "FIELD.ref": one that names a
 * session's tensor is not for this function (ref.h). */
enum octet_status oct_wire_to_operand(octet_arena *arena, const Octet__V1__Operand *operand,
                                      const struct oct_wire_buffers *buffers, const char *field,
                                      struct octet_operand *out,
                                      struct octet_error *err) OCTET_MUST_CHECK;

/* The tensors of one reply; of a product's, 3. */
enum { OCT_WIRE_REPLY_TENSORS = 3, OCT_WIRE_BUFFER_BYTES = 64 * 1024 };
struct oct_wire_reply {
    octet_arena *arena;
    bool uses_buffers; /* as the request did: tensors above OCT_WIRE_BUFFER_BYTES go there */
    ProtobufCBinaryData *list; /* [room]; the response's `buffers` */
    size_t count, room;
};
/* room: tensors that the reply can have. */
bool oct_wire_reply_init(struct oct_wire_reply *reply, octet_arena *arena,
                         const struct oct_wire_buffers *request, size_t room);
/* An array without data gives NULL (the field is absent). Returns false when there is no memory. */
bool oct_wire_put_array(struct oct_wire_reply *reply, const struct octet_array *array,
                        Octet__V1__Tensor **out);
bool oct_wire_put_quantized(struct oct_wire_reply *reply, const struct octet_quantized *quantized,
                            Octet__V1__QuantizedTensor **out);

/* Figures of a quantization; false when there is no memory. */
bool oct_wire_put_stats(octet_arena *arena, const struct octet_operand_stats *from,
                        Octet__V1__OperandStats **out);

#endif
