// Learning-rate schedules. Steps count from 1.
//   warm-up   lr * step / warmup                                       for step <= warmup
//   then      lr * (r + (1 - r) f(t)),  t = (step - warmup) / (steps - warmup), r = min_ratio
//             constant f = 1;  linear f = 1 - t;  cosine f = (1 + cos(pi t)) / 2
#ifndef PL_TRAIN_SCHEDULE_H
#define PL_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef enum pl_schedule_kind { PL_SCHEDULE_CONSTANT, PL_SCHEDULE_LINEAR, PL_SCHEDULE_COSINE } pl_schedule_kind;

const char *pl_schedule_name(int kind); // "constant"...; NULL past the last

typedef struct pl_schedule {
    pl_schedule_kind kind;
    double           lr, min_ratio;
    int64_t          warmup, steps;
} pl_schedule;

double pl_schedule_at(const pl_schedule *s, int64_t step);

#endif
