/* What MaxText refuses or crashes on although Octet can trace it. */
#ifndef OCTET_PLAN_CHECK_MAXTEXT_H
#define OCTET_PLAN_CHECK_MAXTEXT_H

#include "plan/findings.h"

void oct_check_maxtext(struct oct_findings *f);

#endif
