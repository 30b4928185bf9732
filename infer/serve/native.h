// Answers as llama.cpp's own /completion writes them (its tools/server/README.md): flat objects, in a stream too, whose
// last one has "stop": true with the counts.
#ifndef PL_NATIVE_H
#define PL_NATIVE_H

#include "infer/serve/job.h"

// Writes a part of an answer as an object: text[0..bytes), the tokens from..to-1 of the answer. The last one, of a
// stream or whole, has the counts.
typedef struct pl_native_part {
    const char *text;
    size_t      bytes;
    int32_t     from, to;
    bool        last;
} pl_native_part;
void pl_native_put(pl_json_out *o, const pl_choice *c, const pl_job_server *s, const pl_native_part *part);

#endif
