/* Operands that name a session's parameter. */
#ifndef OCTET_WIRE_REF_H
#define OCTET_WIRE_REF_H

#include "octet/v1/octet.pb-c.h"
#include "wire/methods.h"

/* A call is lent one session: INVALID_ARGUMENT "rhs.ref.session_id" when the operands name two. */
enum octet_status oct_wire_check_refs(const Octet__V1__Operand *lhs, const Octet__V1__Operand *rhs,
                                      struct octet_error *err) OCTET_MUST_CHECK;
/* A copy of the parameter, as codes and scales where the session holds it so. Errors: as
 * oct_wire_session within "FIELD.ref"; NOT_FOUND "FIELD.ref.name". */
enum octet_status oct_wire_to_ref(const struct octet_call *call, const Octet__V1__TensorRef *ref,
                                  const char *field, struct octet_operand *out,
                                  struct octet_error *err) OCTET_MUST_CHECK;

#endif
