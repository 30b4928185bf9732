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
#ifndef PL_CHAT_ANSWER_H
#define PL_CHAT_ANSWER_H

#include "data/tokenizer/tokenizer.h"

// Placeholder for a future answer, used to estimate a turn's length.
#define PL_CHAT_STAND_IN "{\"role\":\"assistant\",\"content\":\"x\"}"

// ids[0..n): an answer without prompt and without its stop token. Ids of the target without a piece in its tokenizer
// add nothing. *message: JSON text, U+0000 as its escape; owned by the caller (pl_free).
pl_status pl_chat_answer_message(char **message, const pl_tokenizer *tok, const int32_t *ids, int64_t n, pl_err *err);

// Returns the answer as plain text without special tokens, for scoring; owned by the caller.
pl_status pl_chat_answer_text(char **text, const pl_tokenizer *tok, const int32_t *ids, int64_t n, pl_err *err);

#endif
