// report.html: results and training curves of runs in one self-contained page (inline SVG, no scripts, no outside
// resources, light and dark by the reader's preference).
#ifndef PL_REPORT_H
#define PL_REPORT_H

#include "infer/cli/cli.h"

// runs[i]: a run's directory (results.json and metrics.jsonl of it and of its drafters' folders, whichever there are)
// or a results.json. PL_E_INPUT when a run has neither. Written atomically.
// True for the beginning of a report.
bool      pl_report_is(const char *front, size_t n);
pl_status pl_report_write(const char *path, const char *const *runs, int n_runs, pl_err *err);

extern const pl_command pl_command_report;

#endif
