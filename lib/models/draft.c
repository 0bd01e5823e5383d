/* What all parts of a model under construction ask of it. */
#include "models/draft.h"

#include <string.h>

bool oct_named(const struct oct_model *m, const char *prefix)
{
    return strncmp(octet_config_model_name(m->config), prefix, strlen(prefix)) == 0;
}

void oct_auxiliary_loss(struct oct_model *m, oct_tensor loss)
{
    m->auxiliary = m->auxiliary ? oct_plus(&m->b, m->auxiliary, loss) : loss;
}
