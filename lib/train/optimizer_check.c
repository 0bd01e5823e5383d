/* Settings of an optimizer: their ranges, and which parameters decay. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/parameters_private.h"
#include "train/optimizer.h"

/* A number of the settings and the range that it must be in; open ends are excluded. */
struct range {
    const char *field;
    double value, low, high;
    bool high_is_open;
};

static enum octet_status check_range(const struct range *r, struct octet_error *err)
{
    if (r->value >= r->low && (r->high_is_open ? r->value < r->high : r->value <= r->high))
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, r->field, "%g; %g %s %g was expected", r->value,
                      r->low, r->high_is_open ? "up to, but not," : "to", r->high);
}

/* NULL or "": the first. */
static enum octet_status check_choice(const char *field, const char *value, const char *one,
                                      const char *two, struct octet_error *err)
{
    if (!value || !*value || strcmp(value, one) == 0 || strcmp(value, two) == 0)
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "'%.100s'; '%s' or '%s' was expected",
                      value, one, two);
}

static enum octet_status check_steps(const struct octet_optimizer *o, struct octet_error *err)
{
    if (o->steps < 0 && o->learning_rate_schedule_steps < 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "optimizer.steps",
                          "%" PRId64 " steps and %" PRId64
                          " learning_rate_schedule_steps; one of them must say how many",
                          o->steps, o->learning_rate_schedule_steps);
    return OCTET_OK;
}

enum octet_status octet_session_optimizer_check(const struct octet_optimizer *o,
                                                struct octet_error *err)
{
    const double most = 3e38; /* what f32 holds */
    const struct range ranges[] = {
        {"optimizer.learning_rate", o->learning_rate, 0, most, false},
        {"optimizer.cosine_learning_rate_final_fraction", o->cosine_learning_rate_final_fraction, 0,
         most, false},
        {"optimizer.warmup_steps_fraction", o->warmup_steps_fraction, 0, 1, false},
        {"optimizer.wsd_decay_steps_fraction", o->wsd_decay_steps_fraction, 0, 1, false},
        {"optimizer.gradient_clipping_threshold", o->gradient_clipping_threshold, 0, most, false},
        {"optimizer.adam_b1", o->adam_b1, 0, 1, true},
        {"optimizer.adam_b2", o->adam_b2, 0, 1, true},
        {"optimizer.adam_eps", o->adam_eps, 0, most, false},
        {"optimizer.adam_eps_root", o->adam_eps_root, 0, most, false},
        {"optimizer.adam_weight_decay", o->adam_weight_decay, 0, most, false},
        {"optimizer.routed_bias_update_rate", o->routed_bias_update_rate, 0, most, false},
    };
    enum octet_status status = OCTET_OK;

    if (!o->opt_type || (strcmp(o->opt_type, "adamw") != 0 && strcmp(o->opt_type, "sgd") != 0))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "optimizer.opt_type",
                          "'%.100s'; 'adamw' or 'sgd' was expected",
                          o->opt_type ? o->opt_type : "");
    for (size_t i = 0; status == OCTET_OK && i < sizeof ranges / sizeof *ranges; i++)
        status = check_range(&ranges[i], err);
    if (status == OCTET_OK)
        status =
            check_choice("optimizer.lr_schedule_type", o->lr_schedule_type, "cosine", "wsd", err);
    if (status == OCTET_OK)
        status =
            check_choice("optimizer.wsd_decay_style", o->wsd_decay_style, "linear", "cosine", err);
    return status == OCTET_OK ? check_steps(o, err) : status;
}

/* ---- Decay ---- */

/* Length of "(?i)" and the like, which stay in front of the whole. */
static size_t flags_length(const char *pattern)
{
    size_t letters = strncmp(pattern, "(?", 2) == 0 ? strspn(pattern + 2, "aiLmsux") : 0;

    return letters && pattern[2 + letters] == ')' ? letters + 3 : 0;
}

/* Python's re.search: the pattern somewhere in the text. By itself it must be one, too. */
static enum octet_status create_search(const octet_context *context, const char *pattern,
                                       octet_pattern **out, struct octet_error *err)
{
    size_t size = strlen(pattern) + sizeof "(?s:.*)(?:)(?s:.*)", flags = flags_length(pattern);
    enum octet_status status = octet_pattern_create(context, pattern, out, err);

    if (status != OCTET_OK)
        return status;
    octet_pattern_destroy(*out);
    *out = NULL;
    char *whole = malloc(size);
    if (!whole)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for a pattern");
    snprintf(whole, size, "%.*s(?s:.*)(?:%s)(?s:.*)", (int)flags, pattern, pattern + flags);
    status = octet_pattern_create(context, whole, out, err);
    free(whole);
    return status;
}

static enum octet_status exempt(const octet_pattern *pattern, const octet_parameters *parameters,
                                bool *decayed, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; status == OCTET_OK && i < parameters->count; i++) {
        bool found;
        status = octet_pattern_match(pattern, parameters->entries[i].tensor->name, &found, err);
        if (status == OCTET_OK && found)
            decayed[i] = false;
    }
    return status;
}

enum octet_status oct_decay_mask(const octet_context *context,
                                 const struct octet_optimizer *optimizer,
                                 const octet_parameters *parameters, bool *decayed,
                                 struct octet_error *err)
{
    for (size_t i = 0; i < parameters->count; i++)
        decayed[i] = true;
    for (size_t k = 0; k < optimizer->adamw_mask_count; k++) {
        octet_pattern *pattern = NULL;
        enum octet_status status = create_search(context, optimizer->adamw_mask[k], &pattern, err);
        if (status == OCTET_OK)
            status = exempt(pattern, parameters, decayed, err);
        octet_pattern_destroy(pattern);
        if (status == OCTET_INVALID_ARGUMENT && err) {
            char field[48];
            snprintf(field, sizeof field, "optimizer.adamw_mask[%zu]", k);
            return octet_error_within(err, field);
        }
        if (status != OCTET_OK)
            return status;
    }
    return OCTET_OK;
}
