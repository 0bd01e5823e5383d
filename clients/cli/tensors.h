/* Arrays of safetensors files as operands, and what came back as files.
 *
 * Life: a set keeps the files of one command open; its arrays point into them, so tensors_close
 * comes last. All else is the session's arena's. */
#ifndef OCTET_CLI_TENSORS_H
#define OCTET_CLI_TENSORS_H

#include "session.h"

enum { TENSOR_FILES_MAX = 8, TENSOR_BUFFERS_MAX = 8 };

struct tensors {
    octet_arena *arena;
    struct {
        const char *path;
        const octet_safetensors *file;
    } files[TENSOR_FILES_MAX];
    size_t file_count;
};

/* An operand. It is quantized when its array holds codes and NAME.scale stands beside it, or
 * tensors_scale gave it another. */
struct tensor {
    const char *path, *name, *scale_name;
    bool is_quantized;
    struct octet_array array;             /* the codes of a quantized one */
    struct octet_array scale, zero_point; /* of a quantized one; zero_point.data may be NULL */
};

/* text: "FILE:NAME", or "FILE" where the file has one array (scales of another aside).
 * what: how messages call it: "LHS", "option --cotangent"; they go on with text in quotes. */
enum octet_status tensors_find(struct tensors *set, const char *what, const char *text,
                               struct tensor *out, struct octet_error *err) OCTET_MUST_CHECK;
/* text, "FILE:NAME" or the name of an array in the file of `codes`, becomes its scale. what: as
 * above. Errors: also when the shapes do not go together. */
enum octet_status tensors_scale(struct tensors *set, const char *what, const char *text,
                                struct tensor *codes, struct octet_error *err) OCTET_MUST_CHECK;
/* A warning on standard error when a scale is no finite number above 0, which makes NaN, Inf or
 * zeros of good codes. They are computed with as Qwix does. whose: "LHS 'x:w.scale'". */
void scales_warn(const char *whose, const struct octet_array *scale);
void tensors_close(struct tensors *set);

/* Writes `count` arrays. int4, which the format does not have, is remembered in the metadata, where
 * tensors_find looks for it. Errors: when `path` is one of the files of the set, which would lose
 * its other arrays; see octet_safetensors_write. */
enum octet_status tensors_write(const struct tensors *set, const char *path,
                                const struct octet_named_array *arrays, size_t count,
                                struct octet_error *err) OCTET_MUST_CHECK;

/* Arrays of a request: their bytes go into its `buffers`, so the reply's may too. */
struct request_buffers {
    octet_arena *arena;
    ProtobufCBinaryData list[TENSOR_BUFFERS_MAX];
    size_t count;
};

/* Each returns NULL when there is no memory. */
Octet__V1__Tensor *request_tensor(struct request_buffers *to, const struct octet_array *array);
Octet__V1__QuantizedTensor *request_quantized(struct request_buffers *to,
                                              const struct tensor *tensor);
Octet__V1__Operand *request_operand(struct request_buffers *to, const struct tensor *tensor);

/* An array of a reply; field: its name there. A reply that does not hold what it says is
 * DATA_LOSS. */
enum octet_status reply_array(octet_arena *arena, const Octet__V1__Tensor *tensor,
                              size_t buffer_count, const ProtobufCBinaryData *buffers,
                              const char *field, struct octet_array *out,
                              struct octet_error *err) OCTET_MUST_CHECK;

#endif
