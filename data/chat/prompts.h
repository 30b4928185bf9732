// Prompts in the form that a chat model is served in: conversations written by its template.
#ifndef PL_CHAT_PROMPTS_H
#define PL_CHAT_PROMPTS_H

#include "data/chat/answer.h"
#include "data/chat/template.h"
#include "data/text/prompts.h"
#include "data/tokenizer/tokenizer.h"

// The files of pl_prompts_read, a prompt for each record: a conversation. A record with "messages", "conversations" or
// "turns" of messages is one as it stands; "turns" of strings are what a user says, each after the answer to the last;
// any other record is what a user says once, its text, behind "history" (pairs of what was said and answered) if it has
// that. A "system" or "system_prompt" beside any of them is the system message. Prompts are `rendered`, the text being
// what the assistant answers first, with the beginning of its answer.
// o: its add_generation_prompt and `turn` are set here.
pl_status pl_chat_prompts_read(pl_prompts **out, const char *path, const pl_chat_template *t, const pl_chat_options *o,
                               pl_err *err);
// The same of what the file's records are taken for; lenient: pl_prompts_reader's.
pl_status pl_chat_prompts_read_as(pl_prompts **out, const char *path, const pl_chat_template *t,
                                  const pl_chat_options *o, const pl_prompts_rewrite *w, bool lenient, pl_err *err);

// Turn turn->number (below p->turns) of such a prompt, rendered, with the beginning of the answer. path: for messages.
pl_status pl_chat_prompt_turn(const pl_prompt *p, const char *path, const pl_chat_template *t, const pl_chat_options *o,
                              const pl_chat_turn *turn, pl_jinja_out *out, pl_err *err);
// Exchanges up to that turn (pl_chat_exchanges).
pl_status pl_chat_prompt_exchanges(const pl_prompt *p, const char *path, int number, int *n, pl_err *err);

// The conversations of `all` as prompts of one turn each, their history as the record has it; where the record lacks an
// answer, nothing comes behind it. lenient: a turn that the template refuses ends its conversation, and a warning
// counts those; else it is the error.
pl_status pl_chat_prompts_given(pl_prompts **out, const pl_prompts *all, const char *path, const pl_chat_template *t,
                                const pl_chat_options *o, bool lenient, pl_err *err);
// Warns that n conversations ended so. why: of the first.
void      pl_chat_warn_ended(int64_t n, const char *why);

// A rendered conversation to ids: no BOS is added, and special tokens are those that the text spells. A tokenizer that
// reads none in text (SentencePiece's .model, llama2.c's) is refused where the text spells one.
pl_status pl_chat_encode(const pl_tokenizer *tok, const char *text, size_t bytes, int32_t **ids, int64_t *n,
                         pl_err *err);

// The same files, each record a prompt as a whole, with add_generation_prompt as the options have it.
pl_status pl_chat_texts_read(pl_prompts **out, const char *path, const pl_chat_template *t, const pl_chat_options *o,
                             pl_err *err);
// What a user says, as a conversation of one message, rendered. where, line: for messages.
pl_status pl_chat_said(const pl_chat_template *t, const char *where, int64_t line, const char *said, size_t n,
                       const pl_chat_options *o, pl_jinja_out *out, pl_err *err);

// A prompt of either kind to ids: BOS in front where the tokenizer asks for it, unless a template wrote the text.
pl_status pl_prompt_encode(const pl_tokenizer *tok, const pl_prompt *p, int32_t **ids, int64_t *n, pl_err *err);

// A prompt that is too long: the last `room` tokens, but BOS stays in front. room >= 2.
void pl_prompt_cut(const pl_tokenizer *tok, int32_t *ids, int64_t *n, int64_t room);

#endif
