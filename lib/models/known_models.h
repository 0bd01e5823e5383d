/* The models of configs/models, embedded as text. */
#ifndef OCTET_MODELS_KNOWN_MODELS_H
#define OCTET_MODELS_KNOWN_MODELS_H

#include <stddef.h>

struct oct_known_model {
    const char *name; /* "deepseek3-671b"; the table is in alphabetical order */
    const char *yaml; /* ends with NUL */
    size_t yaml_length;
};

extern const struct oct_known_model oct_known_models[];
extern const size_t oct_known_model_count;

/* NULL when there is none. "-Instruct" in a name is passed over, as in MaxText. */
const struct oct_known_model *oct_known_model_find(const char *name);
const char *oct_known_model_nearest(const char *name);

#endif
