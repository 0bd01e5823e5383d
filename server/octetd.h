/* octetd as a function, so that tests can start the same daemon with methods of their own. */
#ifndef OCTET_SERVER_OCTETD_H
#define OCTET_SERVER_OCTETD_H

#include <stddef.h>

struct octet_method;

/* Reads the options, does what they ask. Returns the exit status. */
int octetd_main(int argc, char **argv, const struct octet_method *methods, size_t method_count);

#endif
