#include "maxtext_train.h"

#include <math.h>
#include <stdio.h>

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static double relative(double got, double want)
{
    return fabs(got - want) / fmax(fabs(want), 1e-30);
}

static void compare_parameters(const struct maxtext_case *c, const octet_session *session, int step,
                               double rates, struct maxtext_training *out)
{
    const octet_safetensors *file;
    struct maxtext_tensors tensors;
    char *path = octet_arena_format(c->arena, "%s/%s.step%d.safetensors", c->folder, c->name, step);

    if (octet_safetensors_open(c->arena, path, &file, NULL))
        return;
    double limit = maxtext_gates[maxtext_kind_of(c)].parameters * rates;
    maxtext_compare_tensors(c, file, session, OCTET_SET_PARAMETER, "param", fmax(limit, 1e-6),
                            INFINITY, &tensors);
    out->parameters.count += tensors.all.count;
    out->parameters.beyond += tensors.all.beyond + tensors.missing;
    if (rates > 0)
        out->most_rates = fmax(out->most_rates, tensors.all.most / rates);
    octet_safetensors_close(file);
}

enum octet_status maxtext_train(const struct maxtext_case *c, const json_t *per_step,
                                octet_context *context, octet_workers *workers,
                                struct maxtext_training *out, struct octet_error *err)
{
    const struct octet_compute compute = {c->arena, workers, NULL};
    const struct octet_pass_options options = {.reduction = OCTET_REDUCTION_MEAN};
    struct octet_optimizer optimizer;
    struct octet_pass pass;
    struct octet_step step;
    octet_session *session;
    double rates = 0;
    enum octet_status status = maxtext_case_session(c, context, OCTET_SESSION_TRAIN, &session, err);

    *out = (struct maxtext_training){0};
    if (status)
        return status;
    octet_session_optimizer(session, &optimizer);
    for (size_t i = 0; i < json_array_size(per_step) && !status; i++) {
        const json_t *row = json_array_get(per_step, i);
        status = octet_session_forward_backward(session, &compute, &c->batch, &options, &pass, err);
        if (status)
            break;
        octet_plan_unref(pass.plan);
        status = octet_session_optim_step(session, &compute, &optimizer, &step, err);
        if (status)
            break;
        rates += number(row, "lr");
        out->steps++;
        out->losses = fmax(out->losses, relative(pass.losses.total, number(row, "loss")));
        out->grad_norm =
            fmax(out->grad_norm, relative(step.grad_norm, number(row, "raw_grad_norm")));
        out->learning_rate = fmax(out->learning_rate, fabs(step.learning_rate - number(row, "lr")) /
                                                          fmax(number(row, "lr"), 1e-12));
        compare_parameters(c, session, (int)i + 1, rates, out);
    }
    octet_session_destroy(session);
    return status;
}

bool maxtext_training_within(const struct maxtext_training *t, const struct maxtext_gates *gates)
{
    return t->losses <= gates->losses && t->grad_norm <= fmax(gates->grad_norm, 1e-4) &&
           t->learning_rate <= 1e-5 &&
           (double)t->parameters.beyond <= gates->parameter_share * (double)t->parameters.count;
}
