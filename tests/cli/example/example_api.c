// Goes on with a prompt, plain or with a draft head: TARGET PROMPT [DRAFTER]
#include <paceline.h>
#include <stdio.h>
#include <string.h>

static bool on_token(void *arg, int32_t token, const char *text, size_t bytes) {
    (void)token;
    fwrite(text, 1, bytes, arg);
    return true;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s TARGET PROMPT [DRAFTER]\n", argv[0]);
        return 2;
    }
    pl_decoder        *d;
    pl_decoder_options options = {.target = argv[1], .drafter = argc > 3 ? argv[3] : NULL};
    pl_decoder_request request = {.max_new_tokens = 40};
    pl_decoder_stats   stats;
    int32_t           *ids = NULL;
    char               why[256] = "";
    int                code = pl_decoder_open(&d, &options, why, sizeof why);
    if (code == 0) {
        code = pl_decoder_encode(d, argv[2], strlen(argv[2]), &ids, &request.n_prompt, why, sizeof why);
        request.prompt = ids;
    }
    if (code == 0) code = pl_decoder_generate(d, &request, on_token, stdout, &stats, why, sizeof why);
    if (code == 0)
        fprintf(stderr, "\npaceline %s: %lld tokens, acceptance length %.2f\n", pl_version(), (long long)stats.tokens,
                stats.acceptance_length);
    else
        fprintf(stderr, "%s\n", why);
    pl_decoder_free(ids);
    pl_decoder_close(d);
    return code;
}
