// A published drafter as this program holds one.
//
// Trainers and engines write the same EAGLE-3 (EAGLE-1, DFlash, DSpark) drafter in several ways; each difference is
// decided here once, and told, so that what is imported drafts what it was trained to draft:
//   config    which members say what: one row of the table of formats.c for each way
//   layers    which target layers feed fc. Written out as inputs (0-based; L: the last layer's output), whatever they
//             were counted by: a file that says which ("paceline.tap_numbering") or a caller who knows is believed; a
//             list of vLLM's and speculators' counts inputs; any other that begins with 1 outputs, that is the usual
//             2, L/2, L-3 inputs, and else refused. A block drafter's members say which; it is written by outputs, as
//             z-lab does
//   names     "layers.0.*" or "midlayer.*", with or without "model."
//   d2t       offsets or target ids, int64 or int32, told apart by t2d and by what they can be
//   target's  embeddings and an output matrix that are copies of the target's are left out or, where a head lacks its
//             own, taken from there; embeddings that were trained stay, of EAGLE-3 and P-EAGLE
//   factors   a low-rank head that an export of ours multiplied out is taken as the factors beside it
#ifndef PL_IMPORT_H
#define PL_IMPORT_H

#include "checkpoints/hf.h"
#include "checkpoints/weights.h"
#include "kernels/base/json.h"

typedef struct pl_import_options {
    const char         *dir, *target, *out;
    pl_hf_tap_numbering numbering; // UNSTATED: what the file says, else what its format means by it
} pl_import_options;

typedef struct pl_import_told {
    const char *format;                  // a row of the table
    const char *numbering;               // who said how layers are counted: "option", "file", "format", "default"
    const char *map;                     // "offsets", "ids" or "none"
    const char *head;                    // "full", "lowrank", "markov" or "target"
    int         n_taps, tap[PL_HF_TAPS]; // inputs
    int64_t     rows;                    // of the head
    bool        own_embed;               // it has embeddings of its own
} pl_import_told;

// Reads dir (config.json and safetensors), checks it against the target, writes out as a whole. Refused with one line:
// kinds of drafters that this program does not train (by their names), anything that it would compute otherwise, a
// tensor that is missing, misshapen or unknown.
pl_status pl_import(const pl_import_options *o, pl_import_told *told, pl_err *err);

// ---- the ways to write a config (formats.c) ----

typedef struct pl_import_format {
    const char         *name, *help;
    pl_hf_tap_numbering numbering; // of a list of layers, where nothing says
} pl_import_format;

const pl_import_format *pl_import_format_at(int i); // NULL past the last
// A config.json of any of them. *stated: it does not say how its layers are counted, but its list stands where one
// numbering alone is meant. PL_E_UNSUPPORTED for a drafter of another kind, by its name.
pl_status pl_import_config(pl_hf_config *c, const pl_import_format **format, bool *stated, const char *dir,
                           pl_err *err);

#endif
