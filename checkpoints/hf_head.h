// What a draft head is, as a checkpoint's config.json states it in the object paceline.head and a recipe in
// drafter.head (infer/head/head.h has the kinds and what their numbers mean).
#ifndef PL_HF_HEAD_H
#define PL_HF_HEAD_H

#include "kernels/base/json.h"
#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

// 0, false or "": not stated.
typedef struct pl_hf_head {
    char kind[32];        // "full", "lowrank", ...
    int  rank;            // of a low-rank head or scorer
    bool position_aware;  // a trimmed head that reads fewer rows the deeper the draft
    int  redistribute;    // a trimmed head: thousandths of its mass that go to tokens outside the list
    int  candidates;      // rows that a scorer picks
    int  clusters, width; // routed heads: clusters of rows; width of the router
    int  k0, k1, kmin;    // routed heads: clusters read at depth 0, at depth 1, at least
    bool fixed, floored;  // routed heads: k0 at every depth; the other rounding of the budget
    char router[16];      // routed heads: what routes
} pl_hf_head;

pl_hf_head pl_hf_head_make(const char *kind, int rank); // kind NULL: ""

// The members of the object paceline.head: kind, and what else is stated. An unknown member is refused.
pl_status pl_hf_head_read(pl_hf_head *h, const pl_json *j, const cJSON *object, pl_err *err);
void      pl_hf_head_put(pl_json_out *o, const pl_hf_head *h);
// Continues a hash with all that is stated.
uint64_t  pl_hf_head_hash(uint64_t hash, const pl_hf_head *h);

// The numbers among the members, for readers and writers of other formats: *value of member i (an int or a bool);
// NULL past the last.
typedef struct pl_hf_head_member {
    const char *name;
    bool        flag; // a bool, else an int
    size_t      offset;
    int         max;
} pl_hf_head_member;
const pl_hf_head_member *pl_hf_head_member_at(int i);

#endif
