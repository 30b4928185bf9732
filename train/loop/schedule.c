#include "train/loop/schedule.h"

#include <math.h>
#include <stddef.h>

const char *pl_schedule_name(int kind) {
    static const char *const names[] = {
        [PL_SCHEDULE_CONSTANT] = "constant", [PL_SCHEDULE_LINEAR] = "linear", [PL_SCHEDULE_COSINE] = "cosine"};
    return kind < (int)(sizeof names / sizeof *names) ? names[kind] : NULL;
}

double pl_schedule_at(const pl_schedule *s, int64_t step) {
    if (step <= s->warmup) return s->lr * (double)step / (double)s->warmup;
    int64_t span = s->steps - s->warmup;
    double  t = span > 0 ? (double)(step - s->warmup) / (double)span : 1, f = 1;
    if (t > 1) t = 1;
    if (s->kind == PL_SCHEDULE_LINEAR) f = 1 - t;
    if (s->kind == PL_SCHEDULE_COSINE) f = (1 + cos(acos(-1.0) * t)) / 2;
    return s->lr * (s->min_ratio + (1 - s->min_ratio) * f);
}
