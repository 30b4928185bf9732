#include "data/strbuf.h"
#include "data/tokenizer.h"
#include "infer/cli_decode.h"
#include "kernels/base/files.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX_BYTES ((size_t)4 << 30)

static const pl_cli_option options[] = {
    {.name = "tokenizer",
     .type = PL_CLI_TEXT,
     .arg = "PATH",
     .help = "tokenizer file, or a model folder that holds one"},
    {.name = "text", .letter = 't', .type = PL_CLI_TEXT, .arg = "T", .help = "text to encode"},
    {.name = "file", .letter = 'f', .type = PL_CLI_TEXT, .arg = "F", .help = "text from a file, as it is"},
    {.name = "no-special",
     .type = PL_CLI_FLAG,
     .help = "no BOS in front, and special tokens in the text are plain text"},
    {.name = "decode",
     .letter = 'd',
     .type = PL_CLI_TEXT,
     .arg = "IDS",
     .help = "ids to text instead: 1,2,3 (or with blanks); - reads them from standard input"},
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

static pl_status decode(const pl_env *env, const pl_tokenizer *tok, const char *given, pl_err *err) {
    pl_strbuf in = {0};
    char     *text = NULL, *list = NULL;
    int32_t  *ids = NULL;
    int64_t   n = 0;
    size_t    bytes = 0;
    pl_status st = PL_OK;
    if (strcmp(given, "-") == 0) {
        PL_TRY_GOTO(st, done, read_all(STDIN_FILENO, &in, err));
        list = pl_strbuf_take(&in);
        if (!list) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "standard input: out of memory"));
        given = list;
    }
    st = pl_cli_ids(given, &ids, &n, err);
    if (st == PL_OK) st = pl_tokenizer_decode(tok, ids, n, &text, &bytes, err);
    if (st != PL_OK) {
        st = pl_fail_at(err, st, "--decode");
        goto done;
    }
    if (env->json) {
        pl_json_out_key(env->result, "text");
        pl_json_out_strn(env->result, text, bytes);
    } else {
        fwrite(text, 1, bytes, env->text);
        fputc('\n', env->text);
    }
done:
    pl_strbuf_fini(&in);
    pl_free(list);
    pl_free(ids);
    pl_free(text);
    return st;
}

static pl_status encode(const pl_env *env, const pl_tokenizer *tok, const pl_cli_args *a, pl_err *err) {
    const char *text = pl_cli_text(a, "text"), *file = pl_cli_text(a, "file");
    uint8_t    *data = NULL;
    size_t      bytes = text ? strlen(text) : 0;
    int32_t    *ids = NULL;
    int64_t     n = 0;
    if (file) {
        PL_TRY(pl_file_read(file, &data, &bytes, FILE_MAX_BYTES, err));
        text = (const char *)data;
    }
    unsigned  flags = pl_cli_has(a, "no-special") ? PL_TOK_NO_SPECIAL : PL_TOK_ADD_BOS;
    pl_status st = pl_tokenizer_encode(tok, text, bytes, flags, &ids, &n, err);
    pl_free(data);
    if (st != PL_OK) return pl_fail_at(err, st, "%s", file ? file : "--text");
    if (env->json) {
        pl_json_out_key(env->result, "ids");
        pl_json_out_array(env->result);
        for (int64_t i = 0; i < n; i++)
            pl_json_out_int(env->result, ids[i]);
        pl_json_out_close(env->result, ']');
    } else {
        for (int64_t i = 0; i < n; i++)
            fprintf(env->text, "%s%d", i ? " " : "", ids[i]);
        fputc('\n', env->text);
    }
    pl_free(ids);
    return PL_OK;
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    int inputs = pl_cli_has(a, "text") + pl_cli_has(a, "file") + pl_cli_has(a, "decode");
    if (!pl_cli_has(a, "tokenizer"))
        return pl_fail(err, PL_E_USAGE, "--tokenizer: is missing; it names a tokenizer file or a model folder");
    if (inputs != 1) return pl_fail(err, PL_E_USAGE, "--text, --file and --decode: give exactly one of them");
    pl_tokenizer *tok;
    PL_TRY(pl_tokenizer_open(&tok, pl_cli_text(a, "tokenizer"), err));
    pl_status st = pl_cli_has(a, "decode") ? decode(env, tok, pl_cli_text(a, "decode"), err) : encode(env, tok, a, err);
    pl_tokenizer_close(tok);
    return st;
}

const pl_command pl_command_tokenize = {
    .name = "tokenize",
    .summary = "text to token ids, and back",
    .options = options,
    .example = "paceline tokenize --tokenizer checkpoints/tiny --text \"Hello there\"",
    .run = run,
};
