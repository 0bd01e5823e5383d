/* Looking up the embedded models. The table itself is made by embed_models.cmake. */
#include "models/known_models.h"

#include <string.h>

#include "octet/nearest.h"
#include "octet/config.h"

enum { NAME_SIZE = 64 }; /* longer than every known name */

static const struct oct_known_model *find_exact(const char *name)
{
    size_t low = 0, high = oct_known_model_count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name, oct_known_models[middle].name);
        if (!order)
            return &oct_known_models[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const struct oct_known_model *oct_known_model_find(const char *name)
{
    static const char instruct[] = "-Instruct";
    const char *part = strstr(name, instruct);
    char base[NAME_SIZE];

    if (!part)
        return find_exact(name);
    size_t before = (size_t)(part - name), after = strlen(part + sizeof instruct - 1);
    if (before + after >= sizeof base)
        return NULL;
    memcpy(base, name, before);
    memcpy(base + before, part + sizeof instruct - 1, after + 1);
    return find_exact(base);
}

static const char *name_at(const void *user, size_t i)
{
    (void)user;
    return oct_known_models[i].name;
}

const char *oct_known_model_nearest(const char *name)
{
    return oct_known_models[octet_nearest(name, oct_known_model_count, name_at, NULL)].name;
}

const char *octet_model_name(size_t index)
{
    return index < oct_known_model_count ? oct_known_models[index].name : NULL;
}

size_t octet_model_count(void)
{
    return oct_known_model_count;
}
