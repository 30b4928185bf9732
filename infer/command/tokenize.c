// `paceline tokenize`: ids and texts of tokens.
#include "data/tokenizer/tokenizer.h"
#include "infer/cli/cli.h"
#include "infer/command/chat.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"
#include "kernels/base/utf8.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX_BYTES ((size_t)4 << 30)

static const pl_key options[] = {
    {PL_OPTION_TEXT("tokenizer", "PATH"), .help = "tokenizer file, or a model folder that holds one"},
    PL_OPTION_PRE,
    {PL_OPTION_TEXT("text", "T"), .letter = 't', .help = "text to encode"},
    {PL_OPTION_TEXT("file", "F"), .letter = 'f', .help = "text from a file or pipe, as it is"},
    {PL_OPTION_FLAG("no-special"), .help = "no BOS in front, and special tokens in the text are plain text"},
    {PL_OPTION_TEXT("decode", "IDS"), .letter = 'd',
     .help = "ids to text instead: 1,2,3 (or with blanks); - reads them from standard input"},
    {PL_OPTION_TEXT("chat", "F.jsonl"),
     .help = "conversations by the model's chat template, one a line: \"messages\" or ShareGPT's \"conversations\""},
    {PL_OPTION_FLAG("add-generation-prompt"),
     .help = "with --chat: the beginning of the assistant's next turn behind each"},
    PL_CHAT_CLI_OPTIONS,
    {0}};

static pl_status read_all(int fd, pl_strbuf *b, pl_err *err) {
    char    chunk[65536];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof chunk)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return pl_fail_errno(err, "standard input");
        pl_strbuf_add(b, chunk, (size_t)n);
    }
    return PL_OK;
}

// Writes text to JSON. Bytes that are not UTF-8 become U+FFFD, and the bytes are added in hexadecimal.
static pl_status put_text(pl_json_out *o, const char *text, size_t n_text, const char *bytes, size_t n_bytes,
                          pl_err *err) {
    pl_json_out_key(o, "text");
    pl_json_out_strn(o, text, n_text);
    if (pl_utf8_valid(bytes, n_bytes) == n_bytes) return PL_OK;
    static const char digits[] = "0123456789abcdef";
    pl_strbuf         hex = {0};
    for (size_t i = 0; i < n_bytes; i++) {
        uint8_t b = (uint8_t)bytes[i];
        pl_strbuf_add(&hex, (char[]){digits[b >> 4], digits[b & 15]}, 2);
    }
    pl_status st = hex.failed ? pl_fail(err, PL_E_MEMORY, "text of %zu bytes: out of memory", n_bytes) : PL_OK;
    if (st == PL_OK) {
        pl_json_out_key(o, "bytes_hex");
        pl_json_out_strn(o, hex.s, hex.n);
    }
    pl_strbuf_fini(&hex);
    return st;
}

static pl_status decode(const pl_env *env, const pl_tokenizer *tok, const char *given, pl_err *err) {
    pl_strbuf in = {0};
    char     *text = NULL, *bytes = NULL, *list = NULL;
    int32_t  *ids = NULL;
    int64_t   n = 0;
    size_t    n_text = 0, n_bytes = 0;
    pl_status st = PL_OK;
    if (strcmp(given, "-") == 0) {
        PL_TRY_GOTO(st, done, read_all(STDIN_FILENO, &in, err));
        list = pl_strbuf_take(&in);
        if (!list) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "standard input: out of memory"));
        given = list;
    }
    st = pl_cli_ids(given, &ids, &n, err);
    if (st == PL_OK) st = pl_tokenizer_decode_bytes(tok, ids, n, &bytes, &n_bytes, err);
    if (st == PL_OK && env->json) st = pl_tokenizer_decode(tok, ids, n, &text, &n_text, err);
    if (st != PL_OK) {
        st = pl_fail_at(err, st, "--decode");
        goto done;
    }
    if (env->json) {
        st = put_text(env->result, text, n_text, bytes, n_bytes, err);
    } else {
        fwrite(bytes, 1, n_bytes, env->text);
        if (isatty(fileno(env->text))) fputc('\n', env->text);
    }
done:
    pl_strbuf_fini(&in);
    pl_free(list);
    pl_free(ids);
    pl_free(text);
    pl_free(bytes);
    return st;
}

// Writes ids as a line of text, or as "ids" of the open JSON object.
static void put_ids(const pl_env *env, pl_strbuf *lines, const int32_t *ids, int64_t n) {
    char number[16];
    if (env->json) {
        pl_put_ids(env->result, "ids", ids, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int digits = snprintf(number, sizeof number, "%s%d", i ? " " : "", ids[i]);
        pl_strbuf_add(lines, number, (size_t)digits);
    }
    pl_strbuf_add(lines, "\n", 1);
}

static pl_status write_lines(const pl_env *env, pl_strbuf *lines, pl_status st, pl_err *err) {
    if (st == PL_OK && lines->failed) st = pl_fail(err, PL_E_MEMORY, "ids: out of memory");
    if (st == PL_OK && lines->n) fwrite(lines->s, 1, lines->n, env->text);
    pl_strbuf_fini(lines);
    return st;
}

static pl_status encode(const pl_env *env, const pl_tokenizer *tok, const pl_cli_args *a, pl_err *err) {
    const char *text = pl_cli_text(a, "text"), *file = pl_cli_text(a, "file");
    uint8_t    *data = NULL;
    size_t      bytes = text ? strlen(text) : 0;
    int32_t    *ids = NULL;
    int64_t     n = 0;
    if (file) {
        PL_TRY(pl_stream_read(file, &data, &bytes, FILE_MAX_BYTES, err));
        text = (const char *)data;
    }
    unsigned  flags = pl_cli_has(a, "no-special") ? PL_TOK_NO_SPECIAL : PL_TOK_ADD_BOS;
    pl_status st = pl_tokenizer_encode(tok, text, bytes, flags, &ids, &n, err);
    pl_free(data);
    if (st != PL_OK) return pl_fail_at(err, st, "%s", file ? file : "--text");
    pl_strbuf lines = {0};
    put_ids(env, &lines, ids, n);
    pl_free(ids);
    return write_lines(env, &lines, PL_OK, err);
}

// Writes a conversation. The template has already written BOS: encoding adds none.
static pl_status put_conversation(const pl_env *env, const pl_tokenizer *tok, const char *text, pl_strbuf *lines,
                                  pl_err *err) {
    int32_t *ids;
    int64_t  n;
    PL_TRY(pl_chat_encode(tok, text, strlen(text), &ids, &n, err));
    if (env->json) {
        pl_json_out_object(env->result);
        pl_put_str(env->result, "text", text);
    }
    put_ids(env, lines, ids, n);
    if (env->json) pl_json_out_close(env->result, '}');
    pl_free(ids);
    return PL_OK;
}

static pl_status encode_chat(const pl_env *env, const pl_tokenizer *tok, const pl_cli_args *a, pl_err *err) {
    const char *file = pl_cli_text(a, "chat");
    pl_prompts *texts = NULL;
    pl_strbuf   lines = {0};
    pl_chat_cli c;
    pl_status   st = pl_chat_cli_open(&c, a, pl_cli_text(a, "tokenizer"), err);
    c.options.add_generation_prompt = pl_cli_has(a, "add-generation-prompt");
    if (st == PL_OK) st = pl_chat_texts_read(&texts, file, c.template, &c.options, err);
    if (st == PL_OK && env->json) {
        pl_put_str(env->result, "chat_template", pl_chat_template_hash(c.template));
        pl_put_array(env->result, "conversations");
    }
    for (int64_t i = 0; st == PL_OK && i < texts->n; i++) {
        st = put_conversation(env, tok, texts->p[i].text, &lines, err);
        if (st != PL_OK) st = pl_fail_at(err, st, "%s:%lld", file, (long long)texts->p[i].line);
    }
    if (st == PL_OK && env->json) pl_json_out_close(env->result, ']');
    st = write_lines(env, &lines, st, err);
    pl_prompts_destroy(texts);
    pl_chat_cli_close(&c);
    return st;
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    bool chat = pl_cli_has(a, "chat");
    int  inputs = pl_cli_has(a, "text") + pl_cli_has(a, "file") + pl_cli_has(a, "decode") + chat;
    if (!pl_cli_has(a, "tokenizer"))
        return pl_fail(err, PL_E_USAGE, "--tokenizer: is missing; it names a tokenizer file or a model folder");
    if (inputs != 1) return pl_fail(err, PL_E_USAGE, "--text, --file, --chat and --decode: give exactly one of them");
    if (!chat && pl_cli_has(a, "add-generation-prompt"))
        return pl_fail(err, PL_E_USAGE, "--add-generation-prompt: needs --chat");
    PL_TRY(pl_chat_cli_check(a, chat, err));
    if (chat && pl_cli_has(a, "no-special"))
        return pl_fail(err, PL_E_USAGE, "--no-special: not with --chat; a chat template is made of special tokens");
    pl_tokenizer *tok;
    PL_TRY(pl_tokenizer_open_pre(&tok, pl_cli_text(a, "tokenizer"), pl_cli_text(a, "pre"), err));
    pl_status st = pl_cli_has(a, "decode") ? decode(env, tok, pl_cli_text(a, "decode"), err)
                   : chat                  ? encode_chat(env, tok, a, err)
                                           : encode(env, tok, a, err);
    pl_tokenizer_close(tok);
    return st;
}

const pl_command pl_command_tokenize = {
    .name = "tokenize",
    .summary = "text to token ids, and back",
    .options = options,
    .about =
        "Tokenizers: SentencePiece .model, tokenizer.json (BPE, Unigram), vocab.json + merges.txt, tiktoken rank "
        "files, "
        "llama2.c .bin, the vocabulary of a .gguf file.\n"
        "A folder stands for its tokenizer.json, else tokenizer.model, else vocab.json with merges.txt, else "
        "tokenizer.bin, else tokenizer.gguf.\n"
        "--decode writes exactly the bytes that the ids stand for (a line feed behind them on a terminal only). With\n"
        "--json \"text\" shows what is not UTF-8 as U+FFFD, and \"bytes_hex\" holds the exact bytes where there is "
        "such.\n"
        "--chat writes each conversation as the model's chat template does (chat_template.jinja, or chat_template of\n"
        "tokenizer_config.json), byte for byte what transformers' apply_chat_template gives, and encodes that.",
    .example = "paceline tokenize --tokenizer checkpoints/tiny --text \"Hello there\"",
    .run = run,
};
