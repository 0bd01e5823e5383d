/* The kernels' text as C, and its work-items as coroutines: at a barrier an item goes to sleep and
 * the next one runs. A barrier that some items of a group do not reach ends the program. */
#include "fake.h"

#include "backends/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { ITEMS_MAX = 256, STACK_BYTES = 96 << 10 };

static struct {
    unsigned group[2], item[2], groups[2], items[2];
    fake_kernel kernel;
    void **arguments;
    ucontext_t scheduler, contexts[ITEMS_MAX];
    enum { READY, ASLEEP, DONE } states[ITEMS_MAX];
    unsigned current;
    char *stacks;
} now;

static void barrier(void);

#define KERNEL(name) static void name
#define FUNCTION static inline
#define GLOBAL
#define LOCAL static
#define LOCAL_POINTER
#define CONSTANT static const
#define UNROLL
#define BARRIER() barrier()
#define group_id(d) ((long)now.group[d])
#define item_id(d) ((int)now.item[d])
#define group_count(d) ((long)now.groups[d])
#define item_count(d) ((int)now.items[d])
#define fma_f32(a, b, c) __builtin_fmaf(a, b, c)
#define atomic_max_u32(at, value)                                                                  \
    do {                                                                                           \
        if (*(at) < (value))                                                                       \
            *(at) = (value);                                                                       \
    } while (0)
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;

static inline uint bits_of(float x)
{
    uint bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

#include "backends/kernels/plan.h"
#include "backends/kernels/numbers.h"
#include "backends/kernels/elements.h"
#include "backends/kernels/product.h"

/* ---- calls: P a buffer, L a long, F a float, of the n-th argument ---- */

#define P(n) (*(void **)arguments[n])
#define L(n) (*(const long *)arguments[n])
#define F(n) (*(const float *)arguments[n])

static void call_amax_rows(void **arguments)
{
    amax_rows(P(0), P(1), L(2), L(3), P(4));
}

static void call_amax_columns(void **arguments)
{
    amax_columns(P(0), P(1), L(2), L(3), P(4));
}

static void call_scales(void **arguments)
{
    scales(L(0), L(1), P(2), F(3), F(4), F(5), L(6), P(7), P(8), P(9));
}

static void call_quantize(void **arguments)
{
    quantize(P(0), P(1), L(2), P(3), P(4), L(5), L(6), F(7), F(8), P(9));
}

static void call_scale(void **arguments)
{
    scale(P(0), P(1), L(2), P(3), L(4), P(5));
}

static void call_cast(void **arguments)
{
    cast(L(0), P(1), L(2), L(3), P(4));
}

static void call_mask(void **arguments)
{
    mask(P(0), P(1), L(2), L(3), P(4), P(5), L(6), P(7));
}

static void call_rescale(void **arguments)
{
    rescale(P(0), P(1), P(2), L(3), L(4), L(5), L(6), L(7), P(8));
}

static void call_gemm_codes(void **arguments)
{
    gemm_codes(P(0), P(1), P(2), P(3), P(4), P(5));
}

static void call_gemm_numbers(void **arguments)
{
    gemm_numbers(P(0), P(1), P(2), P(3), P(4), P(5));
}

fake_kernel fake_kernel_find(const char *name)
{
#define CALL(kernel)                                                                               \
    if (strcmp(name, #kernel) == 0)                                                                \
        return call_##kernel;
    OCT_DEVICE_KERNELS(CALL)
#undef CALL
    return NULL;
}

/* ---- work-groups ---- */

static void select_item(unsigned item)
{
    now.current = item;
    now.item[0] = item % now.items[0];
    now.item[1] = item / now.items[0];
}

static void barrier(void)
{
    unsigned self = now.current;

    now.states[self] = ASLEEP;
    swapcontext(&now.contexts[self], &now.scheduler);
}

static void run_item(void)
{
    now.kernel(now.arguments);
    now.states[now.current] = DONE;
    swapcontext(&now.contexts[now.current], &now.scheduler);
}

static void start_items(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        getcontext(&now.contexts[i]);
        now.contexts[i].uc_stack.ss_sp = now.stacks + (size_t)i * STACK_BYTES;
        now.contexts[i].uc_stack.ss_size = STACK_BYTES;
        now.contexts[i].uc_link = NULL;
        makecontext(&now.contexts[i], run_item, 0);
        now.states[i] = READY;
    }
}

static void run_group(unsigned count)
{
    unsigned done = 0;

    start_items(count);
    while (done < count) {
        done = 0;
        for (unsigned i = 0; i < count; i++) {
            select_item(i);
            if (now.states[i] != DONE)
                swapcontext(&now.scheduler, &now.contexts[i]);
            done += now.states[i] == DONE;
        }
        if (done && done < count) {
            fprintf(stderr, "fake cuda: %u of %u items ended before a barrier\n", done, count);
            abort();
        }
    }
}

void fake_kernel_run(fake_kernel kernel, void **arguments, const unsigned groups[2],
                     const unsigned items[2])
{
    unsigned count = items[0] * items[1];

    if (!now.stacks)
        now.stacks = malloc((size_t)ITEMS_MAX * STACK_BYTES);
    if (!now.stacks || count > ITEMS_MAX)
        abort();
    memcpy(now.groups, groups, sizeof now.groups);
    memcpy(now.items, items, sizeof now.items);
    now.kernel = kernel;
    now.arguments = arguments;
    for (now.group[1] = 0; now.group[1] < groups[1]; now.group[1]++)
        for (now.group[0] = 0; now.group[0] < groups[0]; now.group[0]++)
            run_group(count);
}
