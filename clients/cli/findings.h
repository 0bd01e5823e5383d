/* Findings in the formats of people and of CI systems. */
#ifndef OCTET_CLI_FINDINGS_H
#define OCTET_CLI_FINDINGS_H

#include "session.h"

struct findings {
    const char *title; /* what was checked */
    Octet__V1__Finding *const *items;
    size_t count;
    bool strict;         /* warnings fail too */
    const char *summary; /* a last sentence for people: what was traced, what became of the lock */
};

/* Does this finding make the check fail? */
bool finding_fails(const struct findings *findings, const Octet__V1__Finding *finding);
size_t findings_failing(const struct findings *findings);

void findings_print_text(const struct findings *findings, struct output *out);
/* Workflow commands: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
 */
void findings_print_github(const struct findings *findings, struct output *out);
/* A test suite with a case for each finding, and one for the check itself so that it is never
 * empty. */
void findings_print_junit(const struct findings *findings, struct output *out);

#endif
