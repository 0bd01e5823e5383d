/* What all parts of a model under construction ask of it. */
#include "models/draft.h"

#include <string.h>

bool oct_named(const struct oct_model *m, const char *prefix)
{
    return strncmp(octet_config_model_name(m->config), prefix, strlen(prefix)) == 0;
}

void oct_auxiliary_loss(struct oct_model *m, oct_tensor loss)
{
    struct oct_auxiliary *last = OCTET_NEW(m->b.arena, struct oct_auxiliary);

    if (!last) {
        oct_builder_fail(&m->b, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory for the losses");
        return;
    }
    *last = (struct oct_auxiliary){loss, m->auxiliary};
    m->auxiliary = last;
}

oct_tensor oct_auxiliary_total(struct oct_model *m)
{
    oct_tensor total = 0;

    for (const struct oct_auxiliary *a = m->auxiliary; a; a = a->next)
        total = total ? oct_plus(&m->b, total, a->loss) : a->loss;
    return total;
}
