// Converts a published drafter to this program's format.
//
// Trainers and engines write the same EAGLE-3 (EAGLE-1, DFlash, DSpark) drafter in several ways; each difference is
// resolved here, and reported, so that an imported drafter drafts as it was trained to:
//   config    names of the members: one row of the table of formats.c for each format
//   layers    the target layers that feed fc. Written as inputs (0-based; L: the last layer's output), whatever the
//             file's numbering. The numbering is the caller's option, or stated in the file
//             ("paceline.tap_numbering"); lists of vLLM and speculators count inputs; any other list that begins with 1
//             counts outputs, the usual 2, L/2, L-3 counts inputs, and all else is refused. A block drafter's members
//             define its numbering; it is written by outputs, as z-lab does
//   names     "layers.0.*" or "midlayer.*", with or without "model."
//   d2t       offsets or target ids, int64 or int32, distinguished by t2d and by valid values
//   target's  embeddings and an output matrix that are copies of the target's are left out or, if a head lacks its
//             own, taken from the target; trained embeddings of EAGLE-3 and P-EAGLE are kept
//   factors   a low-rank head that this program's export multiplied out is read from the folder "factors"
#ifndef PL_IMPORT_H
#define PL_IMPORT_H

#include "checkpoints/hf.h"
#include "checkpoints/weights.h"
#include "kernels/base/json.h"

typedef struct pl_import_options {
    const char         *dir, *target, *out;
    pl_hf_tap_numbering numbering; // UNSTATED: the file's, else its format's
} pl_import_options;

typedef struct pl_import_told {
    const char *format;                  // a row of the table
    const char *numbering;               // source of the layers' numbering: "option", "file", "format", "default"
    const char *map;                     // "offsets", "ids" or "none"
    const char *head;                    // "full", "lowrank", "markov" or "target"
    int         n_taps, tap[PL_HF_TAPS]; // inputs
    int64_t     rows;                    // of the head
    bool        own_embed;               // the drafter has its own embeddings
} pl_import_told;

// Reads dir (config.json and safetensors), checks it against the target, and writes `out` atomically. Refuses with one
// line: kinds of drafters that this program does not train (by their names), settings that it would compute
// differently, a tensor that is missing, misshapen or unknown.
pl_status pl_import(const pl_import_options *o, pl_import_told *told, pl_err *err);

// ---- formats of config.json (formats.c) ----

typedef struct pl_import_format {
    const char         *name, *help;
    pl_hf_tap_numbering numbering; // default numbering of a list of layers
} pl_import_format;

const pl_import_format *pl_import_format_at(int i); // NULL past the last
// Reads a config.json of any format. *stated: the file has no explicit numbering, but its list is a member that has a
// single numbering. PL_E_UNSUPPORTED for a drafter of another kind, by its name.
pl_status pl_import_config(pl_hf_config *c, const pl_import_format **format, bool *stated, const char *dir,
                           pl_err *err);

#endif
