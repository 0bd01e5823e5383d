/* The config file: YAML with the keys of the table of options, sections nested once. */
#ifndef OCTET_SERVER_CONFIG_FILE_H
#define OCTET_SERVER_CONFIG_FILE_H

#include "config.h"

/* Sets what the file names and leaves the rest. Errors: NOT_FOUND for a file that cannot be read,
 * INVALID_ARGUMENT with file, line and key for all else (unknown or repeated keys, aliases, lists).
 */
enum octet_status config_file_read(const char *path, struct config *config,
                                   struct octet_error *err) OCTET_MUST_CHECK;

#endif
