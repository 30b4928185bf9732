// libpaceline: decode with a target model and a draft head, losslessly.
//
//   pl_decoder *d;
//   char        why[256];
//   if (pl_decoder_open(&d, &(pl_decoder_options){.target = "model", .drafter = "head"}, why, sizeof why)) ...
//   pl_decoder_encode(d, text, strlen(text), &ids, &n, why, sizeof why);
//   pl_decoder_generate(d, &(pl_decoder_request){.prompt = ids, .n_prompt = n, .max_new_tokens = 64}, on_token, NULL,
//                       &stats, why, sizeof why);
//   pl_decoder_close(d);
//
// Functions return 0, or 2 for wrong use and bad input, or 1 for everything else (no memory, no permission), and then
// leave one line in message[0..size) (message may be NULL). In all structs zero is the default of every field, and new
// fields come only at the end. A decoder serves one thread at a time; different decoders are independent.
#ifndef PACELINE_H
#define PACELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

const char *pl_version(void); // "0.1.0"

typedef struct pl_decoder pl_decoder;

typedef struct pl_decoder_options {
    const char *target;    // Hugging Face folder, GGUF file or llama2.c file
    const char *tokenizer; // NULL: the target's own; without one, prompts and answers are ids alone
    const char *drafter;   // draft head's checkpoint, or "lookup", "recycle"; NULL: plain decoding
    const char *tree; // how it drafts: "chain:5", "eagle2:60,10,6", ...; NULL: the drafter's own, auto for checkpoints
    const char *weights; // "bf16" or "fp32"; NULL: as the file stores them
    int         threads; // 0: all cores
    int         max_len; // longest text in tokens, prompt and answer; 0: the target's context
    const char *pre;     // pre-tokenizer of a tokenizer that names none: "gpt-2", "llama-3", "qwen2"; NULL: as known
    const char *device;  // "cpu", "cuda", "cuda:1", "auto"; NULL: cpu
    const char *kv;      // how caches hold keys and values: "fp32" or "bf16"; NULL: fp32
} pl_decoder_options;

int  pl_decoder_open(pl_decoder **out, const pl_decoder_options *options, char *message, size_t size);
void pl_decoder_close(pl_decoder *d); // NULL is allowed

// UTF-8 text to ids, BOS in front as the tokenizer's configuration says. *ids is freed with pl_decoder_free.
int  pl_decoder_encode(const pl_decoder *d, const char *text, size_t bytes, int32_t **ids, int64_t *n, char *message,
                       size_t size);
void pl_decoder_free(void *ids);

typedef struct pl_decoder_chat {
    const char *conversation;  // JSON: {"messages": [{"role": "user", "content": "Hi"}]}, perhaps "tools"
    size_t      bytes;         // of it
    const char *chat_template; // a file; NULL: the target's own (chat_template.jinja, tokenizer_config.json)
    const char *kwargs;        // JSON object of more variables, {"enable_thinking": false}; NULL: none
    const char *date;          // YYYY-MM-DD, for templates that write it; NULL: those are refused
} pl_decoder_chat;

// A conversation as the chat template writes it, with the beginning of the assistant's answer, to ids.
int pl_decoder_encode_chat(pl_decoder *d, const pl_decoder_chat *chat, int32_t **ids, int64_t *n, char *message,
                           size_t size);

// The ids of an answer as the message that goes on with its conversation, JSON: {"role": "assistant", "content": "..."}
// with special tokens as the tokenizer spells them, a stop token at the end left out; of an answer in gpt-oss's channels
// "thinking", "content" and "tool_calls". The text that pl_decoder_token hands over lacks special tokens. *json is
// 0-terminated and freed with pl_decoder_free.
int pl_decoder_message(const pl_decoder *d, const int32_t *ids, int64_t n, char **json, char *message, size_t size);

typedef struct pl_decoder_request {
    const int32_t *prompt; // at least one token
    int64_t        n_prompt;
    int            max_new_tokens; // 0: 256
    double         temperature;    // 0: greedy
    int            top_k;          // 0: off
    double         top_p;          // 0: off
    uint64_t       seed;           // the same request and seed give the same tokens, with any drafter or none
} pl_decoder_request;

// A token of the answer, with the text that became complete with it (not terminated, possibly empty; NULL without a
// tokenizer). token is -1 for text that waited for its end. false ends the answer.
typedef bool (*pl_decoder_token)(void *arg, int32_t token, const char *text, size_t bytes);

// Prefill and the token it emits are left out of tokens, steps, seconds and what derives from them.
typedef struct pl_decoder_stats {
    int64_t prompt_tokens, tokens, steps, drafted, accepted;
    double  seconds, prefill_seconds;
    double  tokens_per_second, acceptance_length; // 0 where nothing was decoded
    bool    stopped;                              // by a stop token, which is not part of the answer
} pl_decoder_stats;

// Goes on with the prompt. on_token and stats may be NULL.
int pl_decoder_generate(pl_decoder *d, const pl_decoder_request *request, pl_decoder_token on_token, void *arg,
                        pl_decoder_stats *stats, char *message, size_t size);

// For a drafter that keeps answers in a file ("suffix:12,keep=FILE"): writes it, the last answer included.
int pl_decoder_save(pl_decoder *d, char *message, size_t size);

#ifdef __cplusplus
}
#endif

#endif
