// bench: the bandwidth of the memory that a backend computes in.
#include "infer/bench/parts.h"
#include "kernels/base/json_put.h"

#include <math.h>

// Copies within a device's memory, each byte read and written: the footprint is both blocks.
static void put_copies(pl_json_out *o, pl_bench *b) {
    for (double mb = 0.5; mb * 1048576 <= (double)b->copy_bytes && 2 * mb * 1048576 <= b->max_bytes; mb *= 2) {
        double rate = pl_bench_copy_rate(b, (size_t)(mb * 1048576));
        pl_json_out_object(o);
        pl_put_num(o, "footprint_mb", 2 * mb);
        pl_put_num(o, "copy_gb_per_second", rate > 0 ? rate / 1e9 : NAN);
        pl_json_out_close(o, '}');
    }
}

static void put_reads(pl_json_out *o, pl_bench *b) {
    for (double mb = 1; mb <= 1024 && mb * 1048576 <= b->max_bytes; mb *= 2) {
        double one = pl_probe_bandwidth(NULL, (size_t)(mb * 1048576));
        double all = pl_probe_bandwidth(b->env->pool, (size_t)(mb * 1048576));
        pl_json_out_object(o);
        pl_put_num(o, "footprint_mb", mb);
        pl_put_num(o, "one_thread_gb_per_second", one > 0 ? one / 1e9 : NAN);
        pl_put_num(o, "all_threads_gb_per_second", all > 0 ? all / 1e9 : NAN);
        pl_json_out_close(o, '}');
    }
}

void pl_bench_put_bandwidth(pl_json_out *o, pl_bench *b) {
    pl_put_array(o, "bandwidth");
    if (b->copy_bytes)
        put_copies(o, b);
    else
        put_reads(o, b);
    pl_json_out_close(o, ']');
}
