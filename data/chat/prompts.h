// Prompts in the form in which a chat model is served: conversations written by its template.
#ifndef PL_CHAT_PROMPTS_H
#define PL_CHAT_PROMPTS_H

#include "data/chat/template.h"
#include "data/text/prompts.h"
#include "data/tokenizer/tokenizer.h"

// Reads the files of pl_prompts_read, a prompt for each record: a conversation. A record with "messages",
// "conversations" or "turns" of messages is used as it is; "turns" of strings are a user's messages, each after the
// answer to the previous one; any other record is one user message, its text, after "history" (pairs of user text and
// answer) if present. A "system" or "system_prompt" in any of them is the system message. Prompts are `rendered`: up to
// the assistant's first answer, with the beginning of that. o: its add_generation_prompt and `turn` are set here.
pl_status pl_chat_prompts_read(pl_prompts **out, const char *path, const pl_chat_template *t, const pl_chat_options *o,
                               pl_err *err);
// Reads them with records interpreted by w; lenient: pl_prompts_reader's.
pl_status pl_chat_prompts_read_as(pl_prompts **out, const char *path, const pl_chat_template *t,
                                  const pl_chat_options *o, const pl_prompts_rewrite *w, bool lenient, pl_err *err);

// Renders turn turn->number (below p->turns) of such a prompt, with the beginning of the answer. path: for messages.
pl_status pl_chat_prompt_turn(const pl_prompt *p, const char *path, const pl_chat_template *t, const pl_chat_options *o,
                              const pl_chat_turn *turn, pl_jinja_out *out, pl_err *err);
// Returns the exchanges up to that turn (pl_chat_exchanges).
pl_status pl_chat_prompt_exchanges(const pl_prompt *p, const char *path, int number, int *n, pl_err *err);

// Splits the conversations of `all` into prompts of one turn each, with the record's history; a conversation ends at a
// missing answer. lenient: a turn that the template refuses ends its conversation, and a warning counts those; else it
// is the error.
pl_status pl_chat_prompts_given(pl_prompts **out, const pl_prompts *all, const char *path, const pl_chat_template *t,
                                const pl_chat_options *o, bool lenient, pl_err *err);
// Warns that n conversations ended so. why: the first reason.
void      pl_chat_warn_ended(int64_t n, const char *why);

// Encodes a rendered conversation: adds no BOS, and special tokens are those spelled in the text. A tokenizer that
// reads none in text (SentencePiece's .model, llama2.c's) is refused if the text spells one.
pl_status pl_chat_encode(const pl_tokenizer *tok, const char *text, size_t bytes, int32_t **ids, int64_t *n,
                         pl_err *err);

// Reads the same files with each record as a whole prompt; add_generation_prompt as in the options.
pl_status pl_chat_texts_read(pl_prompts **out, const char *path, const pl_chat_template *t, const pl_chat_options *o,
                             pl_err *err);
// Renders a user's text as a conversation of one message. where, line: for messages.
pl_status pl_chat_said(const pl_chat_template *t, const char *where, int64_t line, const char *said, size_t n,
                       const pl_chat_options *o, pl_jinja_out *out, pl_err *err);

// Encodes a prompt of any kind: with BOS if the tokenizer adds it, unless a template wrote the text; of a conversation
// that was served, copies the prompt's ids.
pl_status pl_prompt_encode(const pl_tokenizer *tok, const pl_prompt *p, int32_t **ids, int64_t *n, pl_err *err);

// Cuts a prompt to its last `room` tokens, but keeps BOS in front. room >= 2.
void pl_prompt_cut(const pl_tokenizer *tok, int32_t *ids, int64_t *n, int64_t room);

// ---- answer.c

// Converts the target's answer to a message of the conversation, in the form in which chat APIs return it and accept it
// in later turns.
//
// An answer is the text of its ids with every special token spelled out, so that the ids can be encoded again: {"role":
// "assistant", "content": "[TOOL_CALLS]{x}"}. An unfinished character at its end becomes U+FFFD.
//
// An answer in channels (gpt-oss's Harmony: "<|channel|>analysis<|message|>...<|end|>...", its marks special tokens) is
// parsed as its servers do, since its templates take the parts and refuse the marks: "thinking" holds the analysis,
// "content" the final channel (without one the commentary that has no recipient), "tool_calls" the commentary that has
// one, under the function's name. A part without <|message|> is dropped.

// Placeholder for a future answer, used to estimate a turn's length.
#define PL_CHAT_STAND_IN "{\"role\":\"assistant\",\"content\":\"x\"}"

// ids[0..n): an answer without prompt and without its stop token. Ids of the target without a piece in its tokenizer
// add nothing. *message: JSON text, U+0000 as its escape; owned by the caller (pl_free).
pl_status pl_chat_answer_message(char **message, const pl_tokenizer *tok, const int32_t *ids, int64_t n, pl_err *err);

// Returns the answer as plain text without special tokens, for scoring; owned by the caller.
pl_status pl_chat_answer_text(char **text, const pl_tokenizer *tok, const int32_t *ids, int64_t n, pl_err *err);

#endif
