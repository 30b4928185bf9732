// report.html: results and training curves of runs in one self-contained page (page.html; inline SVG, no scripts, no
// outside resources, light and dark by the reader's preference).
#ifndef PL_REPORT_H
#define PL_REPORT_H

#include "infer/cli/cli.h"
#include "infer/report/curves.h"
#include "infer/report/page.h"

#define PL_REPORT_METHODS 256

// runs[i]: a run's directory (results.json and metrics.jsonl of it and of its drafters' folders, whichever there are)
// or a results.json. PL_E_INPUT when a run has neither. Written atomically.
pl_status pl_report_write(const char *path, const char *const *runs, int n_runs, pl_err *err);
// True for the beginning of a report.
bool      pl_report_is(const char *front, size_t n);

// ---- its parts: members of a run's object in the page's tree ----

// evaluation.c: the methods of a results.json (at most PL_REPORT_METHODS).
void      pl_report_evaluation(pl_page *p, cJSON *run, const cJSON *results);
// Methods that both files have, by name: speeds and acceptance lengths with their ratios. name: the other one's.
void      pl_report_against(pl_page *p, cJSON *run, const cJSON *results, const cJSON *other, const char *name);
// folder.c: the metrics.jsonl of a folder and of two levels of folders below.
pl_status pl_report_curves(pl_curves *c, const char *dir, pl_err *err);
// vocab/*.json of the run's folder: coverage curves of token lists, each over each one's corpus; ceilings/*.json, as
// eval.ceilings and `inspect --ceilings --json` write them (an evaluation empties that folder): what was achieved, the
// ceiling and the oracle by depth.
pl_status pl_report_folder(pl_page *p, cJSON *run, const char *dir, pl_err *err);

#endif
