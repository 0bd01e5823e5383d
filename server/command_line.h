/* Where a config comes from: defaults, then the file that --config names, then the command line. */
#ifndef OCTET_SERVER_COMMAND_LINE_H
#define OCTET_SERVER_COMMAND_LINE_H

#include "config.h"

/* Not checked together yet. Errors: INVALID_ARGUMENT or NOT_FOUND; an unknown name brings the
 * nearest one. */
enum octet_status command_line_parse(int argc, char **argv, struct config *out,
                                     struct octet_error *err) OCTET_MUST_CHECK;

#endif
