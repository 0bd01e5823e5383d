#include "maxtext_compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct maxtext_gates maxtext_gates[MAXTEXT_KINDS] = {
    [MAXTEXT_EXACT] = {1e-5, 1, 1e-5, 1e-5, 1e-5, 1e-5, 1e-2, 1e-3},
    [MAXTEXT_FP8] = {1e-5, 0.75, 1e-3, INFINITY, 0.1, 1e-2, 0.1, 0.05},
    [MAXTEXT_INT8] = {0.03, 1, 1e-3, INFINITY, 0.1, 1e-2, INFINITY, 1},
    [MAXTEXT_INT4] = {0.4, 1, 2.5e-2, INFINITY, INFINITY, INFINITY, INFINITY, 1},
    [MAXTEXT_BRAIN] = {0.15, 0.8, 5e-3, INFINITY, 0.5, 5e-2, INFINITY, 1},
};

const char *maxtext_kind_name(enum maxtext_kind kind)
{
    static const char *const names[] = {"float32", "float32, fp8", "float32, int8", "float32, int4",
                                        "bfloat16"};

    return names[kind];
}

enum maxtext_kind maxtext_kind_of(const struct maxtext_case *c)
{
    if (c->bfloat16)
        return MAXTEXT_BRAIN;
    if (!strcmp(c->arm, "none"))
        return MAXTEXT_EXACT;
    if (strstr(c->arm, "int"))
        return strstr(c->arm, "int4") ? MAXTEXT_INT4 : MAXTEXT_INT8;
    return MAXTEXT_FP8;
}

void maxtext_add(struct maxtext_difference *d, const float *got, const float *want, size_t count,
                 double limit)
{
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)got[i] - (double)want[i]);
        if (isnan(difference))
            difference = INFINITY;
        d->most = fmax(d->most, difference);
        d->largest = fmax(d->largest, fabs((double)want[i]));
        d->square += difference * difference;
        d->squares += (double)want[i] * (double)want[i];
        d->beyond += difference > limit;
    }
    d->count += count;
}

double maxtext_l2(const struct maxtext_difference *d)
{
    if (d->square == 0)
        return 0;
    return sqrt(d->square / d->squares);
}

static double norm_of(const float *numbers, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += (double)numbers[i] * (double)numbers[i];
    return sqrt(sum);
}

/* Every (count / kept)-th number, as make_maxtext.py's `compact` keeps them. */
static const float *sampled(octet_arena *arena, const float *numbers, size_t count, size_t kept)
{
    float *out = OCTET_NEW_ARRAY(arena, kept + 1, float);

    for (size_t i = 0; i < kept; i++)
        out[i] = numbers[i * (count / kept)];
    return out;
}

static void add_tensor(struct maxtext_tensors *t, const char *name, const float *got,
                       const float *want, size_t count, double limit, double show)
{
    struct maxtext_difference one = {0};

    maxtext_add(&one, got, want, count, limit);
    double relative = one.most == 0 ? 0 : one.most / one.largest;
    if (relative > show)
        printf("     %-90s %.1e of %.1e\n", name, one.most, one.largest);
    if (relative >= t->worst) {
        t->worst = relative;
        t->which = name;
    }
    t->all.most = fmax(t->all.most, one.most);
    t->all.largest = fmax(t->all.largest, one.largest);
    t->all.square += one.square, t->all.squares += one.squares;
    t->all.count += one.count, t->all.beyond += one.beyond;
    t->tensors++;
}

static void add_norm(const struct maxtext_case *c, const octet_safetensors *file, const char *kind,
                     const char *name, double norm, struct maxtext_tensors *out)
{
    const struct octet_named_array *stored =
        octet_safetensors_find(file, octet_arena_format(c->arena, "%s_norm/%s", kind, name));

    if (stored) {
        double want = (double)*(const float *)stored->array.data;
        out->norm = fmax(out->norm, fabs(norm - want) / fmax(want, 1e-30));
    }
}

void maxtext_compare_tensors(const struct maxtext_case *c, const octet_safetensors *file,
                             const octet_session *session, enum octet_tensor_set set,
                             const char *kind, double limit, double show,
                             struct maxtext_tensors *out)
{
    size_t length = strlen(kind), count;

    *out = (struct maxtext_tensors){.which = ""};
    for (size_t i = 0; i < octet_safetensors_count(file); i++) {
        const struct octet_named_array *stored = octet_safetensors_get(file, i);
        const char *slash = strchr(stored->name, '/'), *name = slash ? slash + 1 : "";
        bool whole = slash == stored->name + length;
        if (!slash || strncmp(stored->name, kind, length) != 0 ||
            !(whole || !strncmp(stored->name + length, "_sample/", 8)))
            continue;
        const float *got = maxtext_tensor(c, session, set, name, &count);
        size_t kept = (size_t)octet_array_elements(&stored->array);
        if (!got || count < kept || (whole && count != kept)) {
            printf("  %s: not in the session, or of another size\n", name);
            out->missing++;
            continue;
        }
        if (!whole) {
            add_norm(c, file, kind, name, norm_of(got, count), out);
            got = sampled(c->arena, got, count, kept);
        }
        add_tensor(out, name, got, stored->array.data, kept, limit, show);
    }
}
