/* The kernels' text as C. Work-items run one after another; where the kernel has barriers, as
 * coroutines: at a barrier an item goes to sleep and the next one runs. A barrier that some items
 * of a group do not reach ends the program. */
#include "fake.h"

#include "backends/kernels.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A few lines more than a power of two, or all stacks would share their sets of the cache. */
enum { ITEMS_MAX = 256, STACK_BYTES = (96 << 10) + 320 };

static struct {
    unsigned group[2], item[2], groups[2], items[2];
    fake_kernel kernel;
    void **arguments;
    enum { READY, ASLEEP, DONE } states[ITEMS_MAX];
    bool has_barriers;
    unsigned current;
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

static void call_turn(void **arguments)
{
    turn(P(0), L(1), L(2), L(3), P(4));
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

/* ---- coroutines ---- */

static void wrong(const char *what)
{
    fprintf(stderr, "fake cuda: %s\n", what);
    abort();
}

/* An item's own loop: a kernel's whole run each time that the scheduler comes to it anew. */
static void run_items(void);

#if defined(__x86_64__)
/* glibc's swapcontext asks the kernel for the signal mask each time, which took nine tenths of the
 * suite's time. Saves what a callee keeps, and changes the stack. */
void fake_switch(void **save, void *to);
__asm__(".text\n"
        ".type fake_switch, @function\n"
        "fake_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".size fake_switch, . - fake_switch\n");

static void *scheduler, *items[ITEMS_MAX];

/* A stack as fake_switch leaves one, to return into run_items. */
static void make_item(unsigned item, char *stack)
{
    void (**top)(void) = (void (**)(void))(void *)(stack + STACK_BYTES - 64);

    memset(top, 0, 64);
    top[6] = run_items;
    items[item] = top;
}

static void to_item(unsigned item)
{
    fake_switch(&scheduler, items[item]);
}

static void to_scheduler(void)
{
    fake_switch(&items[now.current], scheduler);
}
#else
#include <ucontext.h>
static ucontext_t scheduler, items[ITEMS_MAX];

static void make_item(unsigned item, char *stack)
{
    getcontext(&items[item]);
    items[item].uc_stack.ss_sp = stack;
    items[item].uc_stack.ss_size = STACK_BYTES;
    items[item].uc_link = NULL;
    makecontext(&items[item], run_items, 0);
}

static void to_item(unsigned item)
{
    swapcontext(&scheduler, &items[item]);
}

static void to_scheduler(void)
{
    swapcontext(&items[now.current], &scheduler);
}
#endif

static void run_items(void)
{
    for (;;) {
        now.kernel(now.arguments);
        now.states[now.current] = DONE;
        to_scheduler();
    }
}

static void barrier(void)
{
    if (!now.has_barriers)
        wrong("a barrier in a kernel that was thought to have none");
    now.states[now.current] = ASLEEP;
    to_scheduler();
}

/* ---- work-groups ---- */

static void next_item(void)
{
    now.current++;
    if (++now.item[0] == now.items[0]) {
        now.item[0] = 0;
        now.item[1]++;
    }
}

static void first_item(void)
{
    now.current = now.item[0] = now.item[1] = 0;
}

static void run_group(unsigned count)
{
    unsigned done = 0;

    memset(now.states, READY, sizeof now.states);
    while (done < count) {
        done = 0;
        for (first_item(); now.current < count; next_item()) {
            if (now.states[now.current] != DONE)
                to_item(now.current);
            done += now.states[now.current] == DONE;
        }
        if (done && done < count)
            wrong("some items of a group ended before a barrier of the others");
    }
}

static void run_group_straight(unsigned count)
{
    for (first_item(); now.current < count; next_item())
        now.kernel(now.arguments);
}

void fake_kernel_run(fake_kernel kernel, void **arguments, const unsigned groups[2],
                     const unsigned item_counts[2])
{
    static char *stacks;
    unsigned count = item_counts[0] * item_counts[1];

    if (count > ITEMS_MAX)
        wrong("more work-items than the kernels are made for");
    if (!stacks) {
        stacks = malloc((size_t)ITEMS_MAX * STACK_BYTES);
        for (unsigned i = 0; stacks && i < ITEMS_MAX; i++)
            make_item(i, stacks + (size_t)i * STACK_BYTES);
    }
    memcpy(now.groups, groups, sizeof now.groups);
    memcpy(now.items, item_counts, sizeof now.items);
    now.kernel = kernel;
    now.arguments = arguments;
    now.has_barriers = kernel == call_amax_rows || kernel == call_turn ||
                       kernel == call_gemm_codes || kernel == call_gemm_numbers;
    for (now.group[1] = 0; now.group[1] < groups[1]; now.group[1]++)
        for (now.group[0] = 0; now.group[0] < groups[0]; now.group[0]++)
            (now.has_barriers ? run_group : run_group_straight)(count);
}
