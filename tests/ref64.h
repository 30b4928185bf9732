// The reference ops in double, for gradient checks and as the truth that errors are measured against.
#ifndef PL_TEST_REF64_H
#define PL_TEST_REF64_H

#include "kernels/backend.h"

const pl_backend *pl_backend_ref64(void);

#endif
