/* See ref.h. */
#include "wire/ref.h"

#include <string.h>

#include "wire/held.h"

static const Octet__V1__TensorRef *ref_of(const Octet__V1__Operand *operand)
{
    return operand && operand->kind_case == OCTET__V1__OPERAND__KIND_REF ? operand->ref : NULL;
}

enum octet_status oct_wire_check_refs(const Octet__V1__Operand *lhs, const Octet__V1__Operand *rhs,
                                      struct octet_error *err)
{
    const Octet__V1__TensorRef *a = ref_of(lhs), *b = ref_of(rhs);

    if (!a || !b || strcmp(a->session_id, b->session_id) == 0)
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, "rhs.ref.session_id",
                      "'%.100s' is not lhs' session, '%.100s'; both must be of one", b->session_id,
                      a->session_id);
}

static enum octet_status read(const struct octet_call *call, const Octet__V1__TensorRef *ref,
                              struct octet_operand *out, struct octet_error *err)
{
    octet_held *held;
    const char *name;
    enum octet_status status = oct_wire_session(call, ref->session_id, &held, err);

    *out = (struct octet_operand){.is_quantized = false};
    if (status != OCTET_OK)
        return status;
    const octet_parameters *all = octet_session_tensors(held->session, OCTET_SET_PARAMETER);
    size_t i = octet_parameters_find(all, ref->name);
    if (i == SIZE_MAX)
        return octet_fail(err, OCTET_NOT_FOUND, "name", "the session has no parameter '%.200s'",
                          ref->name);
    status = octet_session_quantized(held->session, i, call->arena, &out->is_quantized,
                                     &out->quantized, err);
    if (status != OCTET_OK || out->is_quantized)
        return status;
    octet_parameters_describe(all, i, &name, &out->array);
    uint64_t bytes = (uint64_t)octet_array_bytes(&out->array);
    out->array.data = octet_arena_alloc_unset(call->arena, bytes);
    if (!out->array.data)
        return octet_arena_exhausted(call->arena, err);
    return octet_session_get(held->session, OCTET_SET_PARAMETER, i, 0, bytes, out->array.data, err);
}

enum octet_status oct_wire_to_ref(const struct octet_call *call, const Octet__V1__TensorRef *ref,
                                  const char *field, struct octet_operand *out,
                                  struct octet_error *err)
{
    enum octet_status status = read(call, ref, out, err);

    if (status == OCTET_INVALID_ARGUMENT || status == OCTET_NOT_FOUND ||
        status == OCTET_UNAVAILABLE) {
        octet_error_within(err, "ref");
        octet_error_within(err, field);
    }
    return status;
}
