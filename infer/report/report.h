// Writes report.html: results and training curves of runs in one self-contained page (page.html; inline SVG, no
// scripts, no external resources, light or dark by the browser's preference).
#ifndef PL_REPORT_H
#define PL_REPORT_H

#include "infer/cli/cli.h"
#include "infer/report/curves.h"
#include "infer/report/page.h"

#define PL_REPORT_METHODS 256

// Writes the page atomically. runs[i]: a run's folder (its results.json and metrics.jsonl and those of its drafters'
// folders, where they exist) or a results.json. PL_E_INPUT when a run has neither.
pl_status pl_report_write(const char *path, const char *const *runs, int n_runs, pl_err *err);
// True if these bytes are the beginning of a report.
bool      pl_report_is(const char *front, size_t n);

// ---- its parts: members of a run's object in the page's tree ----

// evaluation.c: adds the methods of a results.json, at most PL_REPORT_METHODS.
void      pl_report_evaluation(pl_page *p, cJSON *run, const cJSON *results);
// Adds the methods that both files have, by name: speeds and acceptance lengths with their ratios. name: the other
// file's.
void      pl_report_against(pl_page *p, cJSON *run, const cJSON *results, const cJSON *other, const char *name);
// folder.c: reads the metrics.jsonl of a folder and of two levels of folders below.
pl_status pl_report_curves(pl_curves *c, const char *dir, pl_err *err);
// Adds, from vocab/*.json of the run's folder, coverage curves of each token list over the corpus of each; from
// ceilings/*.json, which eval.ceilings and `inspect --ceilings --json` write (an evaluation empties that folder), the
// achieved acceptance, the ceiling and the oracle by depth.
pl_status pl_report_folder(pl_page *p, cJSON *run, const char *dir, pl_err *err);

#endif
