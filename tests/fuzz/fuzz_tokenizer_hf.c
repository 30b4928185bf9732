// Hugging Face tokenizer.json.
#include "tests/fuzz/fuzz.h"

#define SETTINGS                                                                                                       \
    "\"type\":\"BPE\",\"dropout\":null,\"unk_token\":\"<unk>\",\"continuing_subword_prefix\":null,"                    \
    "\"end_of_word_suffix\":null,\"fuse_unk\":true,\"byte_fallback\":false,"
#define VOCAB                                                                                                          \
    "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2,\"\xe2\x96\x81\":3,\"t\":4,\"h\":5,\"e\":6,\"th\":7,\"the\":8,"       \
    "\"\xe2\x96\x81the\":9,\"a\":10,\"aa\":11,\"aaaa\":12},"
#define MERGES "\"merges\":[\"t h\",\"th e\",\"\xe2\x96\x81 the\",[\"a\",\"a\"],[\"aa\",\"aa\"]]"
#define ADDED                                                                                                          \
    "\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"       \
    "\"normalized\":false,\"special\":true},{\"id\":13,\"content\":\" x\",\"single_word\":false,\"lstrip\":true,"      \
    "\"rstrip\":true,\"normalized\":true,\"special\":false}],"

static void seeds(void) {
    pl_fuzz_seed_text("{\"version\":\"1.0\"," ADDED
                      "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
                      "\"\xe2\x96\x81\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
                      "\"\xe2\x96\x81\"}]},\"pre_tokenizer\":null,\"post_processor\":{\"type\":\"TemplateProcessing\","
                      "\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\","
                      "\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],"
                      "\"tokens\":[\"<s>\"]}}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
                      "\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
                      "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
                      "\"model\":{" SETTINGS VOCAB MERGES "}}");
    pl_fuzz_seed_text(
        "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\","
        "\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"first\",\"split\":true},\"decoder\":{"
        "\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"first\","
        "\"split\":true},\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"unk_token\":null," VOCAB MERGES "}}");
    pl_fuzz_seed_text(
        "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\"},\"decoder\":{"
        "\"type\":\"Metaspace\"},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,"
        "\"vocab\":[[\"<unk>\",0],[\"\xe2\x96\x81\",-2],[\"a\",-3.5],[\"\xe2\x96\x81"
        "ab\",-1e1],[\"b\",-4],"
        "[\"<0x63>\",-9]]}}");
    // Byte level: a Split by a pattern, then the byte alphabet (\xc4\xa0 is a space, \xc4\x8a a line feed).
    pl_fuzz_seed_text(
        "{\"added_tokens\":[{\"id\":9,\"content\":\"<|end|>\",\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":false,\"special\":true}],\"normalizer\":{\"type\":\"NFC\"},"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
        "\"Regex\":\"(?i:'s|'t)| ?\\\\p{L}+|\\\\p{N}{1,3}|\\\\s+(?!\\\\S)|\\\\s+|.\"},\"behavior\":\"Isolated\","
        "\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
        "\"use_regex\":false}]},\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
        "\"trim_offsets\":false,\"use_regex\":true},\"decoder\":{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":\"BPE\","
        "\"ignore_merges\":false,\"vocab\":{\"a\":0,\"t\":1,\"h\":2,\"e\":3,\"\xc4\xa0\":4,\"\xc4\x8a\":5,"
        "\"th\":6,\"the\":7,\"\xc4\xa0the\":8},\"merges\":[\"t h\",\"th e\",\"\xc4\xa0 the\"]}}");
}

static const char *const words[] = {"\"type\":\"Replace\"",
                                    "\"content\":\"\"",
                                    "\"pattern\":{\"String\":\"\"}",
                                    "\"id\":4194303",
                                    "\"id\":14",
                                    "\"lstrip\":true",
                                    "\"normalized\":true",
                                    "\"<0x41>\":14",
                                    "\"a a\"",
                                    "\"byte_fallback\":true",
                                    "\"fuse_unk\":false",
                                    "\"prepend_scheme\":\"always\"",
                                    "\\u2581",
                                    "\"unk_token\":\"a\"",
                                    "\"Regex\":\"",
                                    "\\\\p{L}",
                                    "{1,3}",
                                    "(?:",
                                    "(?=",
                                    "*+",
                                    "\"behavior\":\"Removed\"",
                                    "\"use_regex\":true",
                                    "{\"type\":\"Prepend\",\"prepend\":\"aa\"}",
                                    ",",
                                    NULL};

const pl_fuzz_target pl_fuzz = {
    .name = "tokenizer_hf", .seeds = seeds, .words = words, .runs = 2000, .max_len = 1 << 13};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_fuzz_tokenizer(pl_fuzz_file("tokenizer.json", data, n), NULL);
    return 0;
}
