/* What all parts of a model under construction ask of it. */
#include "models/draft.h"

#include <string.h>

bool oct_named(const struct oct_model *m, const char *prefix)
{
    return strncmp(octet_config_model_name(m->config), prefix, strlen(prefix)) == 0;
}

void oct_auxiliary_loss(struct oct_model *m, oct_tensor loss)
{
    if (m->b.dry)
        return;
    struct oct_auxiliary *last = OCTET_NEW(m->b.arena, struct oct_auxiliary);
    if (!last) {
        oct_builder_fail(&m->b, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory for the losses");
        return;
    }
    *last = (struct oct_auxiliary){loss, m->b.repeat, m->auxiliary};
    m->auxiliary = last;
}

static enum oct_op op_of(const struct oct_model *m, oct_tensor x)
{
    return (enum oct_op)m->b.graph.nodes[m->b.graph.producers[x]].op;
}

static oct_tensor mean_of_kind(struct oct_model *m, enum oct_op kind)
{
    oct_tensor sum = 0;
    int64_t turns = 0;

    for (const struct oct_auxiliary *a = m->auxiliary; a && m->b.status == OCTET_OK; a = a->next) {
        if (op_of(m, a->loss) != kind)
            continue;
        sum = sum ? oct_plus(&m->b, sum, a->loss) : a->loss;
        turns += a->turns;
    }
    return turns > 1 ? oct_scale(&m->b, sum, 1 / (double)turns) : sum;
}

oct_tensor oct_auxiliary_total(struct oct_model *m)
{
    oct_tensor balance = mean_of_kind(m, OCT_OP_load_balance_loss);
    oct_tensor index = mean_of_kind(m, OCT_OP_index_loss);

    return balance && index ? oct_plus(&m->b, balance, index) : balance ? balance : index;
}
