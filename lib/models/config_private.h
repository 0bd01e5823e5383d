/* What an octet_config is made of; for the files of lib/models that build one. */
#ifndef OCTET_MODELS_CONFIG_PRIVATE_H
#define OCTET_MODELS_CONFIG_PRIVATE_H

#include "models/value.h"

struct octet_config {
    struct oct_value values[OCT_KEY_COUNT];
    uint8_t origins[OCT_KEY_COUNT]; /* enum octet_config_origin */
    bool overrides_model[OCT_KEY_COUNT];
    struct oct_dims dims;
};

/* Values that MaxText replaces after reading, and dims. Errors: INVALID_ARGUMENT with the key as
 * field. */
enum octet_status oct_config_derive(struct octet_config *config,
                                    struct octet_error *err) OCTET_MUST_CHECK;
/* What MaxText refuses across keys. Errors: INVALID_ARGUMENT with the key as field. */
enum octet_status oct_config_check(const struct octet_config *config,
                                   struct octet_error *err) OCTET_MUST_CHECK;

#endif
