/* What a plan costs, and how much of it is quantized. */
#ifndef OCTET_PLAN_COVERAGE_H
#define OCTET_PLAN_COVERAGE_H

#include "plan/record.h"

/* Fills coverage and totals of a plan that has been walked. */
enum octet_status oct_plan_measure(octet_plan *plan, struct octet_error *err) OCTET_MUST_CHECK;

#endif
