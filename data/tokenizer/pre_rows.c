// Pre-tokenizers by the names that llama.cpp gives them in GGUF files (src/llama-vocab.cpp of
// ggml-org/llama.cpp). Where it approximates the expression of the publisher's tokenizer.json, this is the publisher's.
#include "data/tokenizer/pre.h"
#include <string.h>

#define FRONT "[^\\r\\n\\p{L}\\p{N}]?"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SYMBOLS "| ?[^\\s\\p{L}\\p{N}]+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end) FRONT UPPER "*" LOWER "+" end "|" FRONT UPPER "+" LOWER "*" end
#define CASED_ENGLISH CASED(PL_SPLIT_CONTRACTIONS "?")
#define CHINESE "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define DEEPSEEK_WORDS                                                                                                 \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "              \
    "?[\\p{P}\\p{S}]+"
#define ASIAN                                                                                                          \
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"        \
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
#define HAN "(?!\\p{Han})"
#define HAN_UPPER "(?:" HAN UPPER ")"
#define HAN_LOWER "(?:" HAN LOWER ")"

// Letters with case, as DeepSeek's first tokenizer lists them.
#define LETTERS                                                                                                        \
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"          \
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"                  \
    "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b"         \
    "\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b"          \
    "\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"          \
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"            \
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"           \
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"          \
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"                   \
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"                             \
    "\U0001e900-\U0001e943"

static const pl_pre_row rows[] = {
    {"gpt-2",
     "phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert exaone4 mpt olmo jais trillion "
     "granite-docling",
     .split = {PL_SPLIT_GPT2}},
    {"llama-3", "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .split = {PL_SPLIT_LLAMA3}, .add_bos = true, .ignore_merges = true},
    {"qwen2", "deepseek-r1-qwen", .split = {PL_SPLIT_QWEN2}, .nfc = true},
    {"stablelm2", "hunyuan solar-open kormo f2llmv2 megrez grok-2", .split = {PL_SPLIT_QWEN2}},
    {"dbrx", "smaug-bpe chatglm-bpe", .split = {PL_SPLIT_LLAMA3}},
    {"glm4", "glm5", .split = {PL_SPLIT_LLAMA3}, .ignore_merges = true},
    {"smollm", "starcoder refact command-r codeshell exaone minerva-7b mellum2", .split = {"\\p{N}", PL_SPLIT_GPT2}},
    {"qwen35", NULL,
     .split = {PL_SPLIT_CONTRACTIONS "|" FRONT "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES}},
    {"gpt-4o", "llama4 kanana2 talkie minimax-m2", .split = {CASED_ENGLISH "|\\p{N}{1,3}" SYMBOLS "[\\r\\n/]*" SPACES}},
    {"granite-embed-multi-97m", NULL, .split = {CASED_ENGLISH "|\\p{N}{1,3}" SYMBOLS "[\\r\\n/]*" SPACES},
     .ignore_merges = true},
    {"tekken", NULL, .split = {CASED("") "|\\p{N}" SYMBOLS "[\\r\\n/]*" SPACES}, .add_bos = true,
     .ignore_merges = true},
    {"tiny_aya", "cohere2moe",
     .split = {"\\d{1,3}(?=(?:\\d{3})*(?!\\w))", CASED_ENGLISH "|\\p{N}{1,3}" SYMBOLS "[\\r\\n/]*" SPACES}},
    {"youtu", NULL,
     .split = {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" CHINESE,
               CASED_ENGLISH "|\\p{N}" SYMBOLS "[\\r\\n/]*" SPACES},
     .ignore_merges = true},
    {"minicpm5", NULL,
     .split = {"\\p{N}{1,3}", PL_SPLIT_CONTRACTIONS "|" FRONT "\\p{L}+|\\p{N}+" SYMBOLS "[\\r\\n]*" SPACES},
     .ignore_merges = true},
    {"ufakzeka", NULL, .split = {FRONT "\\p{L}+|\\p{N}" SYMBOLS "[\\r\\n]*" SPACES}},
    {"laguna", NULL, .split = {"[^\\n]+|[\\n]+", PL_SPLIT_QWEN2}},
    {"seed-coder", NULL,
     .split = {PL_SPLIT_CONTRACTIONS "|" FRONT "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" SPACES}},
    {"bailingmoe", "bailingmoe2 llada-moe",
     .split = {"'(?i:[sdmt]|ll|ve|re)|" FRONT "\\p{L}+|\\p{N}" SYMBOLS "[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"exaone-moe", NULL,
     .split = {PL_SPLIT_CONTRACTIONS "|" FRONT "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}" SYMBOLS
                                     "[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"jais-2", NULL,
     .split = {PL_SPLIT_CONTRACTIONS
               "|" FRONT "\\p{L}+|\\p{N}{1,3}" SYMBOLS
               "[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|"
               "\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s"}},
    {"deepseek-v3", "hunyuan-dense joyai-llm hy_v4",
     .split = {"\\p{N}{1,3}", CHINESE, DEEPSEEK_WORDS "[\\r\\n]*" SPACES}},
    {"spark2_5", NULL, .split = {"\\p{N}{1,3}", CHINESE, DEEPSEEK_WORDS "|[\\r\\n]|\\s+(?!\\S)|\\s+", "\\p{N}"}},
    {"deepseek-llm", NULL,
     .split = {"[\\r\\n]", "\\s?[" LETTERS "]+", "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", "\\s+(?!\\s|\\S)",
               "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "\\p{N}+"}},
    {"deepseek-coder", NULL,
     .split = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "\\p{N}"}},
    {"afmoe", NULL, .split = {"\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*(?!\\p{Nd}))", ASIAN, DEEPSEEK_WORDS "[\\r\\n]*" SPACES}},
    {"falcon", NULL, .split = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", PL_SPLIT_GPT2, "[0-9][0-9][0-9]"}},
    {"poro-chat", "bloom gpt3-finnish", .split = {" ?[^(\\s|.,!?…。，、।۔،)]+"}},
    {"viking", NULL, .split = {" ?[^(\\s|.,!?…。，、।۔،)]+", "\\p{N}"}},
    {"superbpe", NULL, .split = {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
    {"chameleon", NULL,
     .split = {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
               "[\\p{P}!-/:-@\\[-`{-~]", PL_SPLIT_GPT2},
     .add_bos = true},
    {"kimi-k2", NULL,
     .split = {"\\p{Han}+|" FRONT HAN_UPPER "*" HAN_LOWER "+" PL_SPLIT_CONTRACTIONS "?|" FRONT HAN_UPPER "+" HAN_LOWER
               "*" PL_SPLIT_CONTRACTIONS "?|\\p{N}{1,3}" SYMBOLS "[\\r\\n]*" SPACES}},
    {"gemma4", "granite-embed-multi-311m sarvam-moe whitespace", .refused = "its pieces are text, not bytes"},
    {"jina-v1-en", "jina-v2-code roberta-bpe", .refused = "it puts a separator behind texts"},
};

// Returns true if a list of names, separated by spaces, holds a name of n bytes.
static bool is_listed(const char *list, const char *name, size_t n) {
    while (list && *list) {
        size_t length = strcspn(list, " ");
        if (length == n && memcmp(list, name, n) == 0) return true;
        list += length + (list[length] == ' ');
    }
    return false;
}

const pl_pre_row *pl_pre_row_of(const char *name) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0 || is_listed(rows[i].also, name, strlen(name))) return &rows[i];
    return NULL;
}
