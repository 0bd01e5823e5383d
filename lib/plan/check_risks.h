/* What experts know to be risky. */
#ifndef OCTET_PLAN_CHECK_RISKS_H
#define OCTET_PLAN_CHECK_RISKS_H

#include "plan/findings.h"

void oct_check_risks(struct oct_findings *f);

#endif
