// SentencePiece .model files through our checks and then the library. What crashes here is a hole in
// data/tokenizer/spm_proto.c: whatever the library trusts must have been checked before.
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/spm_seed.h"

static void seeds(void) {
    spm_bytes m;
    for (int type = 1; type <= 4; type++) {
        spm_model(&m, type, type % 2);
        pl_fuzz_seed(m.b, m.n);
    }
    spm_model(&m, 2, true);
    spm_field(&m, 4,
              "\x0a\x06\x0a\x01"
              "a\x12\x01"
              "a",
              8); // self_test_data
    pl_fuzz_seed(m.b, m.n);
    spm_model(&m, 2, false);
    spm_field(&m, 2, "\x98\x02\x01", 3); // byte_fallback, with its pieces
    for (int b = 0; b < 256; b++) {
        const char hex[] = "0123456789ABCDEF", s[] = {'<', '0', 'x', hex[b >> 4], hex[b & 15], '>', 0};
        spm_piece(&m, s, 0, PL_SPM_BYTE);
    }
    pl_fuzz_seed(m.b, m.n);
}

static const char *const words[] = {"\x18\x05",
                                    "\x18\x04",
                                    "\x18\x06",
                                    "\x18\x02",
                                    "\x18\x01",
                                    "\x0a\x01",
                                    "\x15",
                                    "\xE2\x96\x81",
                                    "<0x41>",
                                    "<unk>",
                                    "\x12\x02\x18\x03",
                                    "\x1a\x04\x20\x01\x18\x01",
                                    "\xff\xff\xff\xff\x0f",
                                    NULL};

const pl_fuzz_target pl_fuzz = {
    .name = "tokenizer_spm", .seeds = seeds, .words = words, .runs = 1500, .max_len = 1 << 13};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_fuzz_tokenizer(pl_fuzz_file("t.model", data, n), NULL);
    return 0;
}
