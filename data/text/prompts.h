// Prompts and benchmark questions.
#ifndef PL_PROMPTS_H
#define PL_PROMPTS_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

// JSON values of a record: a million turns, three each, and what stands beside them.
#define PL_PROMPT_VALUES ((int64_t)4 << 20)

typedef struct pl_prompt {
    char    *text;     // UTF-8, NUL-terminated, never empty; owned
    char    *category; // "category" of the record, "" if it has none; owned
    int64_t  id;       // "question_id", "id", or the number ending "task_id"/"id" ("HumanEval/12"); else the index
    int64_t  line;     // where the record starts, counted from 1
    bool     rendered; // by a chat template: all tokens that the model is to see, BOS among them
    // A conversation: the JSON object that its turns are written from (pl_chat_prompt_turn); owned. `text` then is what
    // the assistant answers first, and `turns` how many answers it gives in all. NULL and 1: there is but the text.
    char    *record;
    int32_t  turns;
    // A conversation whose later turns earlier builds wrote otherwise (null members, roles, ...): its hash is
    // another, so that no dataset of theirs goes on with it.
    bool     anew;
    // A conversation that was served (infer/serve/record.h): ids of the prompt and, behind them, of the target's own
    // answer, to be learned from as they are. `text` then spells the prompt's ids. Owned; NULL: none.
    int32_t *ids;
    int64_t  n_ids, n_prompt;
    bool     stopped;    // the target ended the answer
    char     target[17]; // fingerprint of the model that answered
    // What an answer is held against: "reference" of the record, of a list the first; NULL: nothing. Owned.
    char    *reference;
    int32_t  scoring; // its measure: a pl_scoring (data/benchmarks/score.h); 0: none is stated
} pl_prompt;

typedef struct pl_prompts {
    pl_prompt *p;
    int64_t    n;
} pl_prompts;

// .txt: one prompt per paragraph (separated by blank lines). Anything else: one JSON record per line, or one JSON list
// of records, whichever the file is. The text of a record is the first of these that it has, its name in any case:
//   "prompt", "text"          the string (HumanEval: prompt)
//   "turns"                   strings joined by "\n" (Spec-Bench, MT-bench); or as "messages"
//   "question"                GSM8K
//   "instruction"             with "\n" and "input" behind it where that is a string with text in it (Alpaca)
//   "conversations"/"messages"  the user's first words, up to the first answer to them, joined by "\n": items with
//                             "from"/"role" and "value"/"content" (ShareGPT); roles: data/text/messages.h. "prompt"
//                             and "text" may be such lists, too
//   "answer_ids"              a conversation that was served: "prompt_ids", "answer_ids", "target", "finish"
// The file is read as pl_plain_read does it. A file without prompts, and a member given twice, are errors. Errors
// name file and line.
pl_status pl_prompts_read(pl_prompts **out, const char *path, pl_err *err);
// The same, but the text of a record is its member `field`: a string, a list of strings, or a conversation with all
// that was said in it (joined by "\n"). For counting what answers are made of ("output", "conversations").
pl_status pl_prompts_read_field(pl_prompts **out, const char *path, const char *field, pl_err *err);
void      pl_prompts_destroy(pl_prompts *p);
// A copy with strings of its own; false: out of memory, and *to has none.
bool      pl_prompt_copy(pl_prompt *to, const pl_prompt *p);
void      pl_prompt_fini(pl_prompt *p);

// The same files with records that are read another way. `record` is called for each: j holds what stands in
// text[0..n), an object which begins in `line`; it adds its prompts. Paragraphs of a .txt are prompts as they are.
typedef struct pl_json           pl_json;
typedef struct pl_strbuf         pl_strbuf;
typedef struct pl_prompts_reader pl_prompts_reader;
// What a record is taken for: appends another one to b; nothing: the record is left out.
typedef struct pl_prompts_rewrite {
    pl_status (*record)(void *arg, const pl_json *j, pl_strbuf *b, pl_err *err);
    void *arg;
} pl_prompts_rewrite;
struct pl_prompts_reader {
    pl_status (*record)(const pl_prompts_reader *r, pl_prompts *to, const pl_json *j, int64_t line, const char *text,
                        size_t n, pl_err *err);
    const void               *arg;
    const pl_prompts_rewrite *rewrite; // before it is read; NULL: as it stands
    // Members beside a prompt that are not read, which a warning names once; ends with NULL. NULL: none.
    const char *const        *unread;
    // Records that are no prompts are left out while most are: a warning counts them, with the first three. Without it
    // the first one is the error.
    bool                      lenient;
};
pl_status pl_prompts_read_by(pl_prompts **out, const char *path, const pl_prompts_reader *r, pl_err *err);
// pl_prompts_read of what the file's records are taken for.
pl_status pl_prompts_read_as(pl_prompts **out, const char *path, const pl_prompts_rewrite *w, bool lenient,
                             pl_err *err);
// Adds a prompt of the record in j: category, id, line and reference come from there. Takes text and record (pl_malloc)
// over, also on failure; a text of NULL is out of memory, "" is refused.
pl_status pl_prompts_add(pl_prompts *to, const pl_json *j, int64_t line, pl_prompt p, pl_err *err);
// A record of a served conversation, and its prompt.
bool      pl_prompts_is_served(const pl_json *j);
pl_status pl_prompts_add_served(pl_prompts *to, const pl_json *j, int64_t line, pl_err *err);
// Adds a prompt with all that it has; its strings are taken over, also on failure, and NULL is out of memory.
pl_status pl_prompts_push(pl_prompts *to, pl_prompt p, const char *where, pl_err *err);
// A member of the record in j, its name in any case ("Prompt", "INSTRUCTION"); NULL: none.
struct cJSON;
const struct cJSON *pl_prompts_member(const pl_json *j, const char *name);
// The text of a record by the rules above, appended. one_turn: of "turns" the first alone.
pl_status           pl_prompts_text(const pl_json *j, bool one_turn, pl_strbuf *b, pl_err *err);

// h, with the texts and conversations behind it: whether two lists ask the same.
uint64_t pl_prompts_hash(const pl_prompts *p, uint64_t h);

// Splits by a hash of (seed, text): independent of order, equal texts on one side. `held` gets n_holdout prompts
// exactly when texts are distinct, else the most that whole groups of equal texts allow, never more. Both sides keep
// the order of `all`; they are copies (destroy both). A fraction f is n_holdout = (int64_t)(f * all->n).
pl_status pl_prompts_split(const pl_prompts *all, uint64_t seed, int64_t n_holdout, pl_prompts **train,
                           pl_prompts **held, pl_err *err);

#endif
