// Parts of report.html that have files of their own.
#ifndef PL_REPORT_PARTS_H
#define PL_REPORT_PARTS_H

#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

#include <dirent.h>

#define PL_REPORT_METHODS 256

// A member of results.json: NaN, "" where it is absent or something else.
double      pl_report_num(const pl_json *j, const cJSON *obj, const char *key);
const char *pl_report_str(const pl_json *j, const cJSON *obj, const char *key);

// A table's cell: v * scale by a format of printf's, a dash for what is not known.
void pl_report_cell(pl_strbuf *b, const char *fmt, double v, double scale);
// Of scandir: names in order of bytes, whatever the locale.
int  pl_report_by_name(const struct dirent **a, const struct dirent **b);

// ---- tables.c: an evaluation ----

// The fastest lossless drafter of a temperature in one line; its speed-up by category as bars.
void pl_report_headline(pl_strbuf *b, const pl_json *j, const cJSON *methods, double temperature);
void pl_report_tasks(pl_strbuf *b, const pl_json *j, const cJSON *methods, double temperature, const char *suffix);
// A line a method, and, folded, further figures and those by category.
void pl_report_methods(pl_strbuf *b, const pl_json *j, const cJSON *methods);
void pl_report_categories(pl_strbuf *b, const pl_json *j, const cJSON *methods);
// Batches, scores, and acceptance lengths by the formulas of others.
void pl_report_harness(pl_strbuf *b, const pl_json *j, const cJSON *methods);
// Models, prompts, machine, commit and how to measure again. run: the path of the run, as given.
void pl_report_provenance(pl_strbuf *b, const pl_json *j, const cJSON *methods, const char *run);

// ---- against.c ----

// Methods that both runs have, by name: speeds, their ratio (an interval over prompts where both asked the same), and
// acceptance lengths.
void pl_report_against(pl_strbuf *b, const pl_json *j, const pl_json *other, const char *name);

// ---- heads.c: methods of one results.json (at most PL_REPORT_METHODS) ----

// SlimSpec's (rho, lambda) plane (infer/plan/plan.h), one for each temperature, tree and verifier at which a full head
// and another one were evaluated: rho = acceptance lengths' ratio, lambda = ratio of the head's seconds a level
// drafted; level curves of the speed-up over the full head for its measured kappa and, dashed, for kappa = 0.25.
void pl_report_planes(pl_strbuf *b, const pl_json *j, const cJSON *methods);
// Where the seconds of a token go, and those of drafting (FR-Spec fig. 6, DynaSpec fig. 2).
// Methods of one temperature; suffix goes behind the titles.
void pl_report_times(pl_strbuf *b, const pl_json *j, const cJSON *methods, double temperature, const char *suffix);

// ---- folder.c: what else lies in a run's folder ----

// vocab/*.json: coverage curves of token lists, each over each one's corpus; ceilings/*.json, as eval.ceilings and
// `inspect --ceilings --json` write them (an evaluation empties that folder): what was achieved, the ceiling and the
// oracle by depth.
pl_status pl_report_folder(pl_strbuf *b, const char *dir, pl_err *err);

#endif
