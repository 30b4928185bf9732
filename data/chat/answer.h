// The target's answer as a message of the conversation, as a chat API returns it and takes it back in later turns.
//
// An answer is the text of its ids with every special token as the tokenizer spells it, so that the ids can be encoded
// again: {"role": "assistant", "content": "[TOOL_CALLS]{x}"}. A character that the answer left unfinished is U+FFFD.
//
// An answer in channels (gpt-oss's Harmony: "<|channel|>analysis<|message|>...<|end|>...", its marks special tokens) is
// parsed as its servers do, since its templates take the parts and refuse the marks: "thinking" holds the analysis,
// "content" the final channel (without one the commentary that has no recipient), "tool_calls" the commentary that has
// one, under the function's name. A part whose <|message|> never came says nothing.
#ifndef PL_CHAT_ANSWER_H
#define PL_CHAT_ANSWER_H

#include "data/tokenizer/tokenizer.h"

// Content that stands for an answer yet to be made, where a turn's length is estimated.
#define PL_CHAT_STAND_IN "{\"role\":\"assistant\",\"content\":\"x\"}"

// ids[0..n): an answer without prompt and without its stop token. A target may have rows, and emit them, that its
// tokenizer has no pieces for: they say nothing. *message: JSON text, U+0000 as its escape; the caller's (pl_free).
pl_status pl_chat_answer_message(char **message, const pl_tokenizer *tok, const int32_t *ids, int64_t n, pl_err *err);

// The same answer as plain text, special tokens left out, which a benchmark scores; the caller's.
pl_status pl_chat_answer_text(char **text, const pl_tokenizer *tok, const int32_t *ids, int64_t n, pl_err *err);

#endif
