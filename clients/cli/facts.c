/* Facts of this process, as GetServerInfo gives them. */
#include "facts.h"

struct octet_server_facts facts_local(void)
{
    static const char *const backends[] = {"cpu"}, *const accumulations[] = {"EXACT_ORDER"};

    return (struct octet_server_facts){
        .backends = backends,
        .backend_count = 1,
        .accumulations = accumulations,
        .accumulation_count = 1,
    };
}
