/* Between messages and liboctet's types. What goes out is copied into the call's arena, since a
 * plan may leave the cache before its reply is encoded. */
#ifndef OCTET_WIRE_CONVERT_H
#define OCTET_WIRE_CONVERT_H

#include "octet/v1/octet.pb-c.h"
#include "wire/methods.h"

/* A message of its descriptor's type with all fields at their defaults; NULL when there is no
 * memory. */
void *oct_wire_new(octet_arena *arena, const ProtobufCMessageDescriptor *descriptor);
/* `count` of them in one piece, and the list of pointers to them that protobuf-c wants. */
bool oct_wire_new_list(octet_arena *arena, const ProtobufCMessageDescriptor *descriptor,
                       size_t count, ProtobufCMessage ***list);
/* A copy in the arena; NULL (and not "") when there is no memory. text may be NULL: "". */
char *oct_wire_text(octet_arena *arena, const char *text);

/* request.c. The settings of a message as liboctet takes them, in the arena; model may be NULL. */
enum octet_status oct_wire_config_input(const struct octet_call *call,
                                        const Octet__V1__ModelConfig *model,
                                        struct octet_config_input *out,
                                        struct octet_error *err) OCTET_MUST_CHECK;
/* field: what the message is called in the request ("model"); model may be NULL:
 * defaults. */
enum octet_status oct_wire_config(const struct octet_call *call,
                                  const Octet__V1__ModelConfig *model, const char *field,
                                  const octet_config **out,
                                  struct octet_error *err) OCTET_MUST_CHECK;
/* The rules of a request; *out = NULL when it has none (the config's apply). */
enum octet_status oct_wire_rules(const struct octet_call *call, size_t count,
                                 Octet__V1__QuantizationRule *const *rules, octet_rules **out,
                                 struct octet_error *err) OCTET_MUST_CHECK;
/* Not negative. */
enum octet_status oct_wire_sizes(int64_t batch_size, int64_t sequence_length,
                                 struct octet_graph_options *out,
                                 struct octet_error *err) OCTET_MUST_CHECK;
/* Puts an error's field into the wire's terms: a config key becomes "model.overrides[KEY]" or
 * "model.yaml[KEY]", wherever it was set. Returns the status. */
enum octet_status oct_wire_name_key(const struct octet_call *call, const octet_config *config,
                                    const char *field, struct octet_error *err);
/* The text of one setting ("bfloat16"), in the arena; NULL when there is no such key or no memory.
 */
const char *oct_wire_setting(octet_arena *arena, const octet_config *config, const char *key,
                             enum octet_config_origin *origin);

/* rules.c, trace.c. Each fails only with RESOURCE_EXHAUSTED. */
enum octet_status oct_wire_put_rules(octet_arena *arena, const octet_rules *rules, size_t *count,
                                     Octet__V1__QuantizationRule ***out,
                                     struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status oct_wire_put_trace(octet_arena *arena, const octet_plan *plan,
                                     Octet__V1__Trace **out,
                                     struct octet_error *err) OCTET_MUST_CHECK;
/* A plan's parameters, in alphabetical order of names. */
bool oct_wire_put_parameters(octet_arena *arena, const octet_plan *plan, size_t *count,
                             Octet__V1__Parameter ***out);
/* Sizes of a shape and, where `axes` is given, the names of its axes; in the arena. */
bool oct_wire_put_shape(octet_arena *arena, const struct octet_shape *shape, size_t *rank,
                        int64_t **sizes, size_t *axis_count, char ***axes);

/* session.c. False: no memory. */
bool oct_wire_put_memory(octet_arena *arena, const struct octet_session_memory *from,
                         Octet__V1__SessionMemory **out);

/* quantize.c. What the library computes with; INTERNAL when the call has no workers. */
enum octet_status oct_wire_compute(const struct octet_call *call, struct octet_compute *out,
                                   struct octet_error *err) OCTET_MUST_CHECK;

/* The methods; signatures as octet_method.run. */
typedef enum octet_status oct_wire_run(const struct octet_call *call,
                                       const ProtobufCMessage *request, ProtobufCMessage **response,
                                       struct octet_error *err);
oct_wire_run oct_wire_get_server_info, oct_wire_trace, oct_wire_check, oct_wire_inspect,
    oct_wire_quantize, oct_wire_dequantize, oct_wire_dot_general, oct_wire_ragged_dot,
    oct_wire_create_session, oct_wire_describe_session, oct_wire_list_sessions, oct_wire_keep_alive,
    oct_wire_delete_session, oct_wire_put_tensors, oct_wire_get_tensors, oct_wire_forward,
    oct_wire_forward_backward, oct_wire_optim_step, oct_wire_train_step, oct_wire_save_checkpoint,
    oct_wire_load_checkpoint, oct_wire_list_checkpoints;

#endif
