// Members of an open JSON object in one line each. NULL strings and numbers that are not finite give null.
#ifndef PL_PUT_H
#define PL_PUT_H

#include "kernels/base/json.h"

static inline void pl_put_str(pl_json_out *o, const char *key, const char *s) {
    pl_json_out_key(o, key);
    pl_json_out_str(o, s);
}

static inline void pl_put_int(pl_json_out *o, const char *key, int64_t v) {
    pl_json_out_key(o, key);
    pl_json_out_int(o, v);
}

static inline void pl_put_num(pl_json_out *o, const char *key, double v) {
    pl_json_out_key(o, key);
    pl_json_out_num(o, v);
}

static inline void pl_put_bool(pl_json_out *o, const char *key, bool v) {
    pl_json_out_key(o, key);
    pl_json_out_bool(o, v);
}

static inline void pl_put_object(pl_json_out *o, const char *key) {
    pl_json_out_key(o, key);
    pl_json_out_object(o);
}

static inline void pl_put_array(pl_json_out *o, const char *key) {
    pl_json_out_key(o, key);
    pl_json_out_array(o);
}

static inline void pl_put_nums(pl_json_out *o, const char *key, const double *v, int n) {
    pl_put_array(o, key);
    for (int i = 0; i < n; i++)
        pl_json_out_num(o, v[i]);
    pl_json_out_close(o, ']');
}

static inline void pl_put_ids(pl_json_out *o, const char *key, const int32_t *v, int64_t n) {
    pl_put_array(o, key);
    for (int64_t i = 0; i < n; i++)
        pl_json_out_int(o, v[i]);
    pl_json_out_close(o, ']');
}

#endif
