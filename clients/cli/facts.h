/* What this program tells of itself when no daemon is asked. */
#ifndef OCTET_CLI_FACTS_H
#define OCTET_CLI_FACTS_H

#include "wire/methods.h"

struct octet_server_facts facts_local(void);
/* Adds what only GetServerInfo tells: to look at the CPU takes longer than a small trace. */
void facts_of_cpu(struct octet_server_facts *facts);

#endif
