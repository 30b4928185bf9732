// Stands for the counted device where its kernels cannot be compiled: in a sanitizer's build, and by compilers other
// than GCC.
#include "kernels/cuda/predict/predict.h"

const pl_backend *pl_backend_counted(void) {
    return NULL;
}

void pl_predict_begin(pl_prediction *p) {
    *p = (pl_prediction){0};
}

void pl_predict_end(pl_prediction *p) {
    (void)p;
}
