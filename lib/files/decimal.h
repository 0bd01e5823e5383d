/* Numbers as decimal text, whatever the locale. */
#ifndef OCTET_FILES_DECIMAL_H
#define OCTET_FILES_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>

enum { OCT_DECIMAL_LENGTH_MAX = 255, OCT_DECIMAL_SIZE = 32 };

/* [+-] digits [. digits] [e [+-] digits], with underscores anywhere among the digits; nearest
 * double. false when text[0..length) is not one, or is longer than OCT_DECIMAL_LENGTH_MAX. */
bool oct_decimal_parse(const char *text, size_t length, double *out);

/* The shortest text that reads back as the same double, as Python prints it: "0.95", "1e-05",
 * "10000.0"; infinities and not-a-number as YAML writes them (".inf", "-.inf", ".nan"). Returns
 * buffer. */
const char *oct_decimal_print(double value, char buffer[OCT_DECIMAL_SIZE]);

#endif
