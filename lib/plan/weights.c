/* Parameters behind operands; see weights.h. */
#include "plan/weights.h"

bool oct_rule_quantizes(const octet_rules *rules, int rule)
{
    return rule >= 0 && octet_rules_get(rules, (size_t)rule)->weight_qtype[0];
}

int oct_plan_weights(const octet_graph *graph, uint32_t tensor,
                     void (*visit)(void *user, uint32_t parameter), void *user)
{
    int count = 0;

    for (;;) {
        if (graph->tensors[tensor].kind == OCTET_TENSOR_PARAMETER) {
            if (visit)
                visit(user, tensor);
            return count + 1;
        }
        uint32_t producer = graph->producers[tensor];
        if (graph->tensors[tensor].kind != OCTET_TENSOR_ACTIVATION || producer == UINT32_MAX)
            return count;
        const struct oct_node *node = &graph->nodes[producer];
        switch ((enum oct_op)node->op) {
        case OCT_OP_concat: /* a concatenation of weights leans to the left, so this is not deep */
            count += oct_plan_weights(graph, node->inputs[1], visit, user);
            break;
        case OCT_OP_slice:
        case OCT_OP_cast:
        case OCT_OP_transpose:
        case OCT_OP_reshape:
            break;
        default:
            return count;
        }
        tensor = node->inputs[0];
    }
}
