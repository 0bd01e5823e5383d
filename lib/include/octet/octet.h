/* All of liboctet's public headers. */
#ifndef OCTET_OCTET_H
#define OCTET_OCTET_H

#include "octet/arena.h"
#include "octet/array.h"
#include "octet/batch.h"
#include "octet/cancel.h"
#include "octet/check.h"
#include "octet/config.h"
#include "octet/context.h"
#include "octet/dtype.h"
#include "octet/figures.h"
#include "octet/graph.h"
#include "octet/nearest.h"
#include "octet/parameters.h"
#include "octet/plan.h"
#include "octet/quant.h"
#include "octet/rules.h"
#include "octet/safetensors.h"
#include "octet/session.h"
#include "octet/status.h"
#include "octet/workers.h"

#endif
