/* Facts of this process, as GetServerInfo gives them. */
#include "facts.h"

#include <stdlib.h>

enum { FEATURES_MAX = 32 };

/* The set that workers would be made with. */
static const char *chosen_kernels(void)
{
    const char *wish = getenv("OCTET_CPU"), *best = "";

    for (size_t i = 0; octet_kernel_set_name(i); i++)
        if (!octet_kernel_set_obstacle(i))
            best = octet_kernel_set_name(i);
    return wish && wish[0] ? wish : best;
}

struct octet_server_facts facts_local(void)
{
    static const struct octet_server_backend backends[] = {{.name = "cpu", .device = "0"}};
    static const char *const accumulations[] = {"EXACT_ORDER", "FAST"};

    return (struct octet_server_facts){
        .backends = backends,
        .backend_count = 1,
        .accumulations = accumulations,
        .accumulation_count = 2,
    };
}

void facts_of_cpu(struct octet_server_facts *facts)
{
    static const char *features[FEATURES_MAX];
    size_t count = 0;

    for (; count < FEATURES_MAX && octet_cpu_feature(count); count++)
        features[count] = octet_cpu_feature(count);
    facts->cpu_features = features;
    facts->cpu_feature_count = count;
    facts->kernels = chosen_kernels();
}
