// Drafts of llama.cpp's draft-eagle3, cycle by cycle, for tests/peers/draft_llamacpp.py. Development only.
//
//   draft_llamacpp PROMPTS NEW [llama.cpp's options: -m TARGET.gguf -md DRAFTER.gguf --spec-type draft-eagle3 ...]
//
// PROMPTS: token ids, one prompt a line. Greedy decoding of at most NEW tokens each, the loop of llama.cpp's server: the
// whole prompt is read, its last logits give the first token, then draft, verify, accept. Of each prompt a JSON object
// in a line: {"ids": [...], "gaps": [...], "cycles": [{"at": n, "draft": [...], "accepted": a, "emitted": e}]}; gaps:
// between the two best logits of the target where each id was chosen; the rest as in infer/decode/trace.h.
#include "arg.h"
#include "common.h"
#include "llama.h"
#include "speculative.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

struct choice {
    llama_token id;
    float       gap;
};

static choice choose(llama_context *ctx, int row, int n) {
    const float *x = llama_get_logits_ith(ctx, row);
    int          best = 0;
    float        second = -INFINITY;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) {
            second = x[best];
            best = i;
        } else {
            second = std::max(second, x[i]);
        }
    return {best, x[best] - second};
}

template <typename T> static void put(const char *name, const std::vector<T> &v, const char *format) {
    printf("\"%s\": [", name);
    for (size_t i = 0; i < v.size(); i++) {
        if (i) printf(", ");
        printf(format, v[i]);
    }
    printf("]");
}

struct engine {
    llama_context      *tgt, *dft;
    common_speculative *spec;
    int                 n_vocab, max_new;
};

static bool forward(engine &e, common_batch &b) {
    return llama_process(e.tgt, LLAMA_PROCESS_TYPE_DECODE, b.get()) == 0 && common_speculative_process(e.spec, b);
}

static bool decode(engine &e, llama_tokens text) {
    const llama_vocab *vocab = llama_model_get_vocab(llama_get_model(e.tgt));
    llama_tokens       ids;
    std::vector<float> gaps;
    std::string        cycles;
    common_batch       batch(e.tgt);
    llama_memory_clear(llama_get_memory(e.tgt), true);
    llama_memory_clear(llama_get_memory(e.dft), true);
    for (size_t i = 0; i < text.size(); i++)
        batch.add(text[i], (llama_pos)i, 0, i + 1 == text.size());
    if (!forward(e, batch)) return false;
    common_speculative_begin(e.spec, 0, text);
    choice c = choose(e.tgt, (int)text.size() - 1, e.n_vocab);
    ids.push_back(c.id);
    gaps.push_back(c.gap);
    while ((int)ids.size() < e.max_new && !llama_vocab_is_eog(vocab, ids.back())) {
        const llama_token last = ids.back();
        const llama_pos   at = (llama_pos)text.size(); // positions that are read; `last` is not
        llama_tokens      draft;
        common_speculative_get_draft_params(e.spec, 0) = {true, -1, at, last, &text, &draft};
        common_speculative_draft(e.spec);
        llama_memory_seq_rm(llama_get_memory(e.dft), 0, at, -1);
        batch.clear();
        batch.add(last, at, 0, true);
        for (size_t i = 0; i < draft.size(); i++)
            batch.add(draft[i], at + 1 + (llama_pos)i, 0, true);
        if (!forward(e, batch)) return false;
        size_t accepted = 0, before = ids.size();
        bool   go = true;
        for (size_t i = 0; go; i++) {
            choice k = choose(e.tgt, (int)i, e.n_vocab);
            text.push_back(ids.back());
            ids.push_back(k.id);
            gaps.push_back(k.gap);
            bool right = i < draft.size() && draft[i] == k.id;
            accepted += right;
            go = right && (int)ids.size() < e.max_new && !llama_vocab_is_eog(vocab, k.id);
        }
        common_speculative_accept(e.spec, 0, (uint16_t)(ids.size() - before - 1));
        llama_memory_seq_rm(llama_get_memory(e.tgt), 0, (llama_pos)text.size(), -1);
        llama_memory_seq_rm(llama_get_memory(e.dft), 0, (llama_pos)text.size(), -1);
        std::ostringstream s;
        s << (cycles.empty() ? "" : ", ") << "{\"at\": " << at + 1 << ", \"draft\": [";
        for (size_t i = 0; i < draft.size(); i++)
            s << (i ? ", " : "") << draft[i];
        s << "], \"accepted\": " << accepted << ", \"emitted\": " << ids.size() - before << "}";
        cycles += s.str();
    }
    printf("{");
    put("ids", ids, "%d");
    printf(", ");
    put("gaps", gaps, "%.9g");
    printf(", \"cycles\": [%s]}\n", cycles.c_str());
    return true;
}

int main(int argc, char **argv) {
    common_params params;
    if (argc < 3) return 2;
    std::ifstream prompts(argv[1]);
    const int     max_new = atoi(argv[2]);
    argv[2] = argv[0];
    common_init();
    if (!prompts || !common_params_parse(argc - 2, argv + 2, params, LLAMA_EXAMPLE_SPECULATIVE)) return 2;
    const auto limits = common_speculative_get_output_limits(params.n_batch, params.n_parallel,
                                                             common_speculative_n_max(&params.speculative));
    params.n_outputs_max = limits.total;
    params.n_outputs_max_per_seq = limits.per_seq;
    llama_backend_init();
    auto           tgt = common_init_from_params(params);
    llama_context *ctx = tgt->context();
    common_params  params_dft = common_base_params_to_speculative(params);
    auto           dft = common_speculative_init_from_params(params_dft, tgt->model(), ctx);
    params.speculative.draft.ctx_tgt = ctx;
    params.speculative.draft.ctx_dft = dft->context();
    engine e = {ctx, dft->context(), common_speculative_init(params.speculative, 1),
                llama_vocab_n_tokens(llama_model_get_vocab(tgt->model())), max_new};
    if (!e.spec || !e.dft) return 1;
    bool good = true;
    for (std::string line; good && std::getline(prompts, line);) {
        std::istringstream s(line);
        llama_tokens       text;
        for (llama_token id; s >> id;)
            text.push_back(id);
        good = decode(e, text);
    }
    common_speculative_free(e.spec);
    return good ? 0 : 1;
}
