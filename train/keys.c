#include "train/keys.h"

#include "data/dataset/dataset.h"
#include "data/text/text.h"
#include "infer/drafter/dflash.h"
#include "kernels/op/attention.h"
#include "kernels/op/divergence.h"
#include "kernels/op/topk.h"

#include <string.h>

#define TRAIN (PL_STAGE_TARGET | PL_STAGE_DRAFTER)
#define TEXT (PL_STAGE_TOKENIZER | PL_STAGE_TOKENS)
#define BIG 1e15

// The backbones, then what has none: a language model that drafts for another.
const char *pl_train_drafter_choice(int i) {
    int n = 0;
    while (n < i && pl_backbone_choice(n))
        n++;
    return pl_backbone_choice(i) ? pl_backbone_choice(i) : n == i ? PL_TRAIN_STANDALONE : NULL;
}

const pl_key pl_train_keys[] = {
    {PL_KEY_FIELD_ENUM(pl_train_recipe, kind), .deflt = "drafter", .choices = {"drafter", "target"},
     .help = "what this recipe trains", .stages = TRAIN},

    {PL_KEY_FIELD_INT(pl_train_recipe, target.new.hidden_size), .deflt = "256", .min = 8, .max = 65536,
     .help = "kind: target: width of the residual stream", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_INT(pl_train_recipe, target.new.layers), .deflt = "8", .min = 1, .max = 1024,
     .help = "kind: target: decoder layers", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_INT(pl_train_recipe, target.new.heads), .deflt = "8", .min = 1, .max = 4096,
     .help = "kind: target: attention heads", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_INT(pl_train_recipe, target.new.kv_heads), .deflt = "4", .min = 1, .max = 4096,
     .help = "kind: target: key/value heads", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_INT(pl_train_recipe, target.new.intermediate), .deflt = "704", .min = 1, .max = 1 << 20,
     .help = "kind: target: width of the MLP", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_INT(pl_train_recipe, target.new.vocab), .deflt = "0", .min = 0, .max = 1 << 22,
     .help = "kind: target: rows of the embedding; 0: the tokenizer's pieces", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_INT(pl_train_recipe, target.new.positions), .deflt = "2048", .min = 8, .max = 1 << 20,
     .help = "kind: target: longest context", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, target.new.tie), .deflt = "true",
     .help = "kind: target: one matrix for embedding and output", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_REAL(pl_train_recipe, target.new.rope_theta), .deflt = "10000", .min = 1, .max = 1e9,
     .help = "kind: target: base of the rotary embedding", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_REAL(pl_train_recipe, target.new.norm_eps), .deflt = "1e-5", .min = 1e-12, .max = 1e-2,
     .help = "kind: target: epsilon of the norms", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_PATH(pl_train_recipe, target.start),
     .help = "kind: target: begin with the weights, shape and tokenizer of this model, instead of target.new",
     .stages = PL_KEY_NO_STAGE},

    {PL_KEY_FIELD_STRINGS(pl_train_recipe, data.text),
     .help = "kind: target: text files, folders of *.txt, or glob patterns; of *.jsonl a document for each \"text\"",
     .stages = TEXT},
    {PL_KEY_FIELD_STRINGS(pl_train_recipe, data.code),
     .help = "further files read as they are, line by line (source code)", .stages = TEXT},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, data.gutenberg), .deflt = "true",
     .help = "drop Project Gutenberg's header and licence", .stages = TEXT},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, data.unwrap), .deflt = "true", .help = "join hard-wrapped lines to paragraphs",
     .stages = TEXT},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, data.encoding), .deflt = "strict", .names = pl_text_encoding_name,
     .help = "what to do with text that is not UTF-8", .stages = TEXT},
    {PL_KEY_FIELD_INT(pl_train_recipe, data.chunk_bytes), .deflt = "0", .min = 0, .max = 1 << 30,
     .help = "cut documents at paragraph ends into pieces of at most this many bytes; 0: whole", .stages = TEXT},
    {PL_KEY_FIELD_STRINGS(pl_train_recipe, data.holdout.names),
     .help = "text: file names that are held out for evaluation", .stages = TEXT},
    {PL_KEY_FIELD_INT(pl_train_recipe, data.holdout.every), .deflt = "0", .min = 0, .max = BIG,
     .help = "text: every n-th document is held out for evaluation; 0: none", .stages = TEXT},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, data.eos), .deflt = "true", .help = "text: documents end with EOS",
     .stages = PL_STAGE_TOKENS},
    {PL_KEY_FIELD_INT(pl_train_recipe, data.tokenizer.vocab_size), .deflt = "4096", .min = 300, .max = 1 << 20,
     .help = "pieces of the tokenizer that is trained", .stages = PL_STAGE_TOKENIZER},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, data.tokenizer.type), .deflt = "bpe", .choices = {"bpe", "unigram"},
     .help = "kind of the tokenizer that is trained", .stages = PL_STAGE_TOKENIZER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, data.tokenizer.coverage), .deflt = "0.9995", .min = 0.5, .max = 1,
     .help = "share of characters with a piece; others become bytes", .stages = PL_STAGE_TOKENIZER},
    {PL_KEY_FIELD_INT(pl_train_recipe, data.tokenizer.max_lines), .deflt = "0", .min = 0, .max = BIG,
     .help = "lines drawn to train it on; 0: all", .stages = PL_STAGE_TOKENIZER},
    {PL_KEY_FIELD_INT(pl_train_recipe, data.window), .deflt = "0", .min = 0, .max = BIG, .late = true,
     .help = "kind: drafter: documents that are shuffled among each other, at least: those of whole shards; 0: all",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_PATH(pl_train_recipe, data.dataset), .help = "kind: drafter: the dataset; default OUT/dataset",
     .stages = PL_KEY_NO_STAGE},

    {PL_KEY_FIELD_ENUM(pl_train_recipe, drafter.kind), .each = true, .deflt = "eagle3",
     .names = pl_train_drafter_choice,
     .help = "the drafter's backbone; eagle2 is eagle1's model, evaluated with EAGLE-2's tree where eval.tree is not "
             "given; "
             "lm: none, a language model of the target's vocabulary (drafter.start)",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INTS(pl_train_recipe, drafter.taps), .each = true, .deflt = "[]", .min = 0, .max = 1024,
     .help = "eagle3, peagle, dflash: target layers whose inputs the drafter reads; empty: an early, a middle and a "
             "late one, or "
             "(dflash) as many as it has layers, as in the papers",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, drafter.intermediate), .deflt = "0", .min = 0, .max = 1 << 20,
     .help = "width of the MLP; 0: the target's, in proportion to drafter.width", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, drafter.width), .each = true, .deflt = "0", .min = 0, .max = 65536,
     .help = "eagle3, peagle: width of the drafter's states, with embeddings of its own where it is not the target's; "
             "0: the target's",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, drafter.own_embeddings), .each = true, .deflt = "false",
     .help = "eagle3, peagle: embeddings that learn with the rest instead of the target's (as published P-EAGLE has)",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, drafter.layers), .each = true, .deflt = "0", .min = 0, .max = PL_DFLASH_LAYERS,
     .help = "layers of the drafter, of hydra: of each head; 0: 5 of dflash, 4 of hydra++, 1 of others; eagle1 has one",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, drafter.window), .each = true, .deflt = "0", .min = 0, .max = 1 << 20,
     .late = true, .help = "eagle3, dflash: positions that a layer sees, up to a row's own; 0: all",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, drafter.layer), .each = true, .deflt = "drawn", .choices = {"drawn", "target"},
     .late = true, .help = "eagle3 of one layer: how it starts, drawn or as the target's last layer",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, drafter.norm_output), .each = true, .deflt = "false",
     .help = "eagle3: what a step hands on is normed (EAGLE-3.1)", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, drafter.fc_norm), .each = true, .deflt = "false",
     .help = "eagle3, peagle: each of the target's layers is normed by itself before fc (EAGLE-3.1)",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, drafter.norm_before_fc), .each = true, .deflt = "false",
     .help = "eagle3, peagle: instead, all of them as one vector", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, drafter.norm_before_residual), .each = true, .deflt = "false",
     .help = "eagle3, peagle: the first layer adds to the normed state instead of the raw one",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, drafter.block), .each = true, .deflt = "0", .min = 0, .max = PL_HF_BLOCK_MAX,
     .help =
         "dflash: slots of a block, which drafts one token less; peagle: tokens drafted at once; 0: 8; medusa: heads; "
         "0: 5; hydra, hydra++: heads; 0: 4",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, drafter.mask_token), .each = true, .deflt = "-1", .min = -1, .max = 1 << 22,
     .help = "dflash, peagle: the token in the slots behind the anchor, one that texts do not hold; -1: the target's "
             "first row "
             "without a piece, else <unk>",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, drafter.anchor_first), .each = true, .deflt = "false",
     .help = "dflash: the anchor's slot drafts too, each slot the token behind its own (DSpark)",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, drafter.conv.taps), .each = true, .deflt = "0", .min = 0, .max = PL_HF_BLOCK_MAX,
     .help =
         "dflash: convolutions of so many taps along a block's slots around each sublayer (DFlash 2 has 2); 0: none",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, drafter.conv.group), .each = true, .deflt = "16", .min = 1, .max = 65536,
     .help = "dflash: channels that share a tap's dynamic weight; divides the width", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, drafter.selector.candidates), .each = true, .deflt = "0", .min = 0,
     .max = PL_TOPK_MAX,
     .help = "the head's best so many tokens are rescored by the token before them (DFlash 2 has 16), behind any head; "
             "0: no selector",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, drafter.selector.rank), .each = true, .deflt = "0", .min = 0, .max = 65536,
     .help = "of the selector; 0: 256 at 151,936 tokens, by the root of the vocabulary", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, drafter.selector.kind), .each = true, .late = true, .deflt = "codebook",
     .names = pl_selector_name,
     .help = "how candidates are rescored: codebook: by vectors of two tokens (DFlash 2); lattice: dflash: by a small "
             "network over all candidates of a block (LiLiCorr)",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, drafter.selector.width), .each = true, .late = true, .deflt = "0", .min = 0,
     .max = 65536, .help = "lattice: width of its network; 0: the drafter's", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, drafter.selector.layers), .each = true, .late = true, .deflt = "2", .min = 1,
     .max = 4, .help = "lattice: its layers", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, drafter.selector.heads), .each = true, .late = true, .deflt = "4", .min = 1,
     .max = 256, .help = "lattice: heads of its attention", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, drafter.selector.scale), .each = true, .late = true, .deflt = "10", .min = 1e-3,
     .max = 1e3, .help = "lattice: scores are cosines times this", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, drafter.selector.law), .each = true, .late = true, .deflt = "full",
     .names = pl_hf_law_name,
     .help = "what drafts are drawn from behind a selector: full: the list has the mass that the head gives it, other "
             "tokens keep theirs; list: the list alone",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, drafter.bias), .deflt = "false",
     .help = "eagle1: fc has a bias, which vLLM cannot load", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_PATH(pl_train_recipe, traces.path),
     .help = "dynaspec: traces to learn from; absent: captured into the run's directory", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_STRING(pl_train_recipe, traces.tree), .deflt = "eagle2:60,10,6",
     .help = "dynaspec: how the full head drafts while it is traced; EAGLE-2's own beams unless given",
     .stages = PL_STAGE_TRACES},
    {PL_KEY_FIELD_INT(pl_train_recipe, traces.top), .deflt = "16", .min = 1, .max = PL_TOPK_MAX,
     .help = "dynaspec: the full head's best tokens that are kept of each row", .stages = PL_STAGE_TRACES},
    {PL_KEY_FIELD_INT(pl_train_recipe, traces.rows), .deflt = "200000", .min = 0, .max = BIG,
     .help = "dynaspec: rows to trace, in whole documents; 0: all of the data", .stages = PL_STAGE_TRACES},

    {PL_KEY_FIELD_STRING(pl_train_recipe, drafter.start), .each = true,
     .help = "begin with the weights of this checkpoint, or of the drafter of this name in `drafters`: its backbone, "
             "and its head or what can be made of it (fewer rows, low-rank factors); lm: the model, as a whole",
     .stages = PL_KEY_NO_STAGE}, // what is in it counts
    {PL_KEY_FIELD_ENUM(pl_train_recipe, drafter.freeze), .each = true, .deflt = "none", .choices = {"none", "backbone"},
     .help = "backbone: train the head alone", .stages = PL_STAGE_DRAFTER},

    {PL_KEY_FIELD_INT(pl_train_recipe, train.steps), .each = true, .deflt = "1000", .min = 0, .max = BIG,
     .also = "max_steps", .help = "optimizer steps; 0: the drafter is evaluated and written as it starts",
     .stages = TRAIN},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.batch), .deflt = "16", .min = 1, .max = 1 << 20,
     .help = "kind: target: sequences per step; drafters have train.slots of train.slot_rows",
     .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.seq_len), .deflt = "512", .min = 2, .max = 1 << 20,
     .help = "kind: target: tokens per sequence; drafters have train.slots of train.slot_rows",
     .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.long_seq_len), .deflt = "0", .min = 0, .max = 1 << 20,
     .help = "kind: target: tokens per sequence in the last steps, as many tokens per step", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.long_steps), .deflt = "0", .min = 0, .max = BIG,
     .help = "kind: target: how many of the last steps are long", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.slots), .deflt = "0", .min = 0, .max = PL_SLOTS_MAX,
     .help =
         "parts of a step, computed one after another to save memory, and divided among --ranks; 0: kind: target: as "
         "many as keep each within 2048 rows; kind: drafter: 1",
     .stages = TRAIN},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.slot_rows), .deflt = "2048", .min = 8, .max = 1 << 20,
     .help = "kind: drafter: tokens of a slot, at most", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, train.recompute), .deflt = "false",
     .help = "layers (kind: target) or steps of the unroll (drafter), and logits, are computed again in backward "
             "instead of kept: less memory, more time, the same weights",
     .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, train.rows), .deflt = "supervised", .choices = {"supervised", "all"},
     .late = true,
     .help = "eagle3, eagle1, peagle: rows that no step learns from run for their keys and values alone, or as all "
             "others: the same gradient, summed in another order",
     .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.learn_rows), .deflt = "0", .min = 0, .max = 1 << 20, .late = true,
     .help = "rows that are learned from at a time, at most: bounds the memory of large slots of which few rows are "
             "answers; a slot with more takes several passes, each over the keys of all its rows; 0: slot_rows",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.unroll), .each = true, .deflt = "0", .min = 0, .max = PL_MAX_UNROLL,
     .help = "kind: drafter: steps of training-time test; 0: eagle3 5, eagle1 1 (more: on its own features too)",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.eval_steps), .deflt = "0", .min = 0, .max = PL_MAX_UNROLL,
     .help = "kind: drafter: draft depths that held-out evaluations cover, of blocks all of them; 0: as train.unroll, "
             "at least 4",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.anchors), .each = true, .deflt = "0", .min = 0, .max = 1 << 20,
     .help = "dflash, medusa, hydra: rows of a slot, drawn, that blocks stand behind; 0: so many that blocks have "
             "slot_rows rows, of medusa and hydra all that learn",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, train.draft_weights), .each = true, .deflt = "decay",
     .choices = {"decay", "d-pace"},
     .help =
         "dflash, medusa, hydra: what the drafts of a block weigh: draft k step_decay^k, or by how likely the drafter "
         "makes those before it (D-PACE)",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.top_k), .each = true, .deflt = "0", .min = 0, .max = PL_TOPK_MAX,
     .help =
         "eagle3, eagle1, peagle: HASS's distillation of the target's best so many tokens beside the divergence (the "
         "paper: 10); 0: none",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.top_weight), .each = true, .deflt = "1", .min = 1e-6, .max = 1e6,
     .help = "of that beside the divergence, whose weights it has", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.depth_ratio), .each = true, .deflt = "0.7", .min = 0, .max = 1,
     .help = "peagle: so large a share of the rows, to the power k, learns at depth k", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.depth_floor), .each = true, .deflt = "0.2", .min = 0, .max = 1,
     .help = "peagle: at least this share", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.pace_alpha), .deflt = "0.5", .min = 1e-3, .max = 0.999,
     .help = "draft_weights d-pace: 0 trusts the drafter's probabilities, 1 weighs all drafts by their place alone",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.confidence_weight), .deflt = "1", .min = 1e-6, .max = 1e6,
     .help = "head markov: weight of its confidence's loss beside the drafts'", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.selector_weight), .each = true, .deflt = "1", .min = 1e-6, .max = 1e6,
     .help = "weight of the selector's loss beside the head's", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, train.selector_objective), .each = true, .deflt = "hard-ce",
     .names = pl_objective_name,
     .help = "what a selector learns: hard-ce: the target's choice, for drafts taken greedily; the others: its "
             "distribution over the candidates, for drafts that are drawn",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, train.objective), .each = true, .deflt = "kl", .names = pl_objective_name,
     .help = "kind: drafter: divergence from the target's distribution: forward KL, cross-entropy with it or with its "
             "choice, total variation, TVD++, reverse KL, Jensen-Shannon, LK losses; lm: label, the documents' own "
             "tokens",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.on_policy.share), .each = true, .late = true, .deflt = "0", .min = 0,
     .max = 1,
     .help = "lm: of so many of the documents the drafter learns from an answer of its own to the prompt, of which the "
             "target says what it would have said; 0: from the target's answers alone",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.on_policy.temperature), .each = true, .late = true, .deflt = "1",
     .min = 0, .max = 1000, .help = "at which it draws them; 0: greedily", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, train.masked_teacher), .each = true, .deflt = "true",
     .help = "trimmed heads: the target's distribution is restricted to the draft ids (train.masked_rows: and which "
             "rows count); false: it stays as it is and all rows count",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, train.masked_rows), .each = true, .late = true, .deflt = "drafted",
     .choices = {"drafted", "all"},
     .help = "of a masked teacher: rows count whose choice is a draft id, as EAGLE-3 has it, or all, as SlimSpec's "
             "section 4.2 has it",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.js_beta), .deflt = "0.5", .min = 1e-3, .max = 0.999,
     .help = "objective js: the target's share of the mixture", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.lk_decay), .deflt = "3", .min = 1e-6, .max = 1e3,
     .help = "objective lk-lambda: KL weighs exp(-lk_decay acceptance), total variation the rest",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.token_weight), .deflt = "0.1", .min = 1e-6, .max = 1e6,
     .help = "eagle1: weight of the divergence from the target's distribution", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.feature_weight), .deflt = "1", .min = 0, .max = 1e6,
     .help = "eagle1: weight of the regression on the target's features", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.noise), .each = true, .deflt = "0.2", .min = 0, .max = 100,
     .help = "eagle1: width of the uniform noise on the features of a document of 512 rows, as 1/rows elsewhere",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.holdout), .deflt = PL_DATASET_HOLDOUT, .min = 0, .max = BIG,
     .help = "kind: drafter: every n-th prompt is held out to estimate acceptance; 0: none",
     .stages = PL_STAGE_DRAFTER | PL_STAGE_TRACES}, // traces say which documents
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.step_decay), .deflt = "0.8", .min = 0, .max = 1,
     .help = "kind: drafter: unroll step k weighs step_decay^k", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.lr), .each = true, .deflt = "1e-3", .min = 0, .max = 10,
     .also = "learning_rate", .help = "highest learning rate", .stages = TRAIN},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, train.schedule), .deflt = "cosine", .names = pl_schedule_name,
     .help = "of the learning rate after the warm-up", .stages = TRAIN},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.min_lr_ratio), .deflt = "0.1", .min = 0, .max = 1,
     .help = "last learning rate over the highest", .stages = TRAIN},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.warmup), .each = true, .deflt = "0", .min = 0, .max = BIG,
     .also = "warmup_steps", .help = "steps of warm-up", .stages = TRAIN},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.weight_decay), .deflt = "0", .min = 0, .max = 10,
     .help = "AdamW's decay of matrices", .stages = TRAIN},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, train.decay_embeddings), .deflt = "true", .help = "decay embeddings too",
     .stages = TRAIN},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.beta1), .deflt = "0.9", .min = 0, .max = 0.999999, .help = "AdamW's",
     .stages = TRAIN},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.beta2), .deflt = "0.95", .min = 0, .max = 0.999999, .help = "AdamW's",
     .stages = TRAIN},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.eps), .deflt = "1e-8", .min = 1e-20, .max = 1, .help = "AdamW's",
     .stages = TRAIN},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.clip), .deflt = "1", .min = 0, .max = 1e9,
     .help = "largest norm of the gradient; 0: no clipping", .stages = TRAIN},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, train.dtype), .deflt = "bf16", .choices = {"bf16", "f32"},
     .help = "weights of the checkpoint, and of the model while it is trained", .stages = TRAIN},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.eval_every), .deflt = "0", .min = 0, .max = BIG,
     .help = "steps between held-out evaluations; 0: only at the end", .stages = TRAIN},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.eval_tokens), .deflt = "65536", .min = 1, .max = BIG,
     .help = "tokens of an evaluation, about", .stages = TRAIN},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.eval_prompts), .deflt = "24", .min = 0, .max = 1 << 16,
     .help =
         "kind: drafter: held-out prompts that the target answers with the drafter at each evaluation, as it will be "
         "served; best is chosen by their acceptance length, and an alarm tells where it is not what training "
         "expects; 0: none",
     .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.checkpoint_every), .deflt = "0", .min = 0, .max = BIG,
     .help = "steps between checkpoints; 0: only at the end and when stopped", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.checkpoint_minutes), .deflt = "0", .min = 0, .max = 1e6,
     .help = "a checkpoint also when so many minutes have passed; 0: never for time", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.keep), .deflt = "2", .min = 1, .max = 1 << 20,
     .help = "checkpoints kept to go on from: the last, and those before it for when that one is damaged; best is one "
             "more",
     .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, train.resume), .deflt = "same", .choices = {"same", "any"},
     .help =
         "go on only in the arithmetic (and train.rows) that a run began in, or in any (another device, a processor "
         "without fused multiply-add): then its bits are neither's",
     .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_ENUM(pl_train_recipe, train.shard), .deflt = "none", .choices = {"none", "optimizer"},
     .help = "optimizer: each rank holds its share of masters and moments, for less memory; the weights are the same, "
             "bit for bit, and a run goes on either way",
     .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_BOOL(pl_train_recipe, train.guard.nonfinite), .deflt = "true", .late = true,
     .help = "a step whose loss or gradient is not finite changes no weight, and skipped.jsonl says what it read; "
             "false: it ends the run",
     .stages = TRAIN},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.guard.spike), .deflt = "0", .min = 0, .max = 1e9, .late = true,
     .help = "the same for a loss or a gradient norm of more than so many times its median over train.guard.window "
             "steps; 0: never",
     .stages = TRAIN},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.guard.window), .deflt = "64", .min = 1, .max = PL_GUARD_WINDOW_MAX,
     .late = true,
     .help = "the last steps that counted, of which the medians are; before there are so many none is one",
     .stages = TRAIN},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.guard.in_a_row), .deflt = "10", .min = 0, .max = BIG,
     .help = "so many steps in a row that do not count end the run; 0: never", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.log_every), .deflt = "10", .min = 1, .max = BIG,
     .help = "steps between lines of metrics.jsonl", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.unlikelihood.sequences), .deflt = "0", .min = 0, .max = 1 << 16,
     .help = "kind: target: texts per step that the model continues greedily, to make less likely what it repeats in "
             "them (sequence-level unlikelihood); 0: none",
     .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.unlikelihood.prefix), .deflt = "50", .min = 1, .max = 1 << 20,
     .help = "tokens of text that each goes on from", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.unlikelihood.length), .deflt = "100", .min = 5, .max = 1 << 20,
     .help = "tokens of a continuation, at most", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_REAL(pl_train_recipe, train.unlikelihood.weight), .deflt = "1", .min = 0, .max = 1e6,
     .help = "weight of a repeated token beside a token of text", .stages = PL_STAGE_TARGET},
    {PL_KEY_FIELD_INT(pl_train_recipe, train.unlikelihood.first_step), .deflt = "1", .min = 1, .max = BIG,
     .help = "the first step that does so", .stages = PL_STAGE_TARGET},
    PL_KEYS_END(pl_train_recipe)};

const pl_backbone_kind *pl_train_backbone(const pl_recipe *r) {
    return pl_backbone_at(pl_train_recipe_of(r)->drafter.kind);
}

bool pl_train_standalone(const pl_recipe *r) {
    return !pl_train_backbone(r);
}

const pl_head_kind *pl_train_head_kind(const pl_recipe *r) {
    return pl_head_at(pl_head_recipe_of(r)->kind);
}

bool pl_train_routed(const pl_recipe *r) {
    return pl_train_head_kind(r)->routed;
}

pl_hf_head pl_train_head_read(const pl_recipe *r) {
    const pl_key *keys = pl_train_head_kind(r)->keys;
    return pl_head_spec(pl_head_recipe_of(r), keys ? pl_recipe_struct(r, keys) : NULL);
}

pl_hf_selector pl_train_selector(const pl_recipe *r) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    pl_hf_selector         s = {.rank = (int)tr->drafter.selector.rank,
                                .candidates = (int)tr->drafter.selector.candidates,
                                .law = (pl_hf_law)tr->drafter.selector.law};
    if (tr->drafter.selector.kind == 0) return s; // the first of selectors.def, which has no further settings
    snprintf(s.kind, sizeof s.kind, "%s", pl_selector_name(tr->drafter.selector.kind));
    s.width = (int)tr->drafter.selector.width;
    s.layers = (int)tr->drafter.selector.layers;
    s.heads = (int)tr->drafter.selector.heads;
    s.scale = tr->drafter.selector.scale;
    return s;
}

pl_shard pl_train_shard(const pl_recipe *r, const pl_comm *comm) {
    bool sharded = pl_train_recipe_of(r)->train.shard == PL_SHARD_OPTIMIZER;
    return sharded ? (pl_shard){pl_comm_rank(comm), pl_comm_ranks(comm)} : (pl_shard){0};
}

pl_status pl_train_options_read(pl_trainer_options *o, const pl_recipe *r, const char *out_dir, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    *o = (pl_trainer_options){
        .out_dir = out_dir,
        .steps = tr->train.steps,
        .checkpoint_every = tr->train.checkpoint_every,
        .checkpoint_minutes = tr->train.checkpoint_minutes,
        .keep = tr->train.keep,
        .guard = {.nonfinite = tr->train.guard.nonfinite,
                  .spike = tr->train.guard.spike,
                  .window = tr->train.guard.window,
                  .in_a_row = tr->train.guard.in_a_row},
        .any_arithmetic = tr->train.resume == PL_RESUME_ANY,
        .eval_every = tr->train.eval_every,
        .log_every = tr->train.log_every,
        .schedule = {.kind = (pl_schedule_kind)tr->train.schedule,
                     .lr = tr->train.lr,
                     .min_ratio = tr->train.min_lr_ratio,
                     .warmup = tr->train.warmup,
                     .steps = tr->train.steps},
        .optim = {.beta1 = tr->train.beta1,
                  .beta2 = tr->train.beta2,
                  .eps = tr->train.eps,
                  .decay = tr->train.weight_decay,
                  .clip = tr->train.clip},
    };
    if (o->steps > 0 && o->schedule.warmup > o->steps)
        return pl_recipe_fail(r, &tr->train.warmup, err, "%lld steps, more than train.steps, %lld",
                              (long long)o->schedule.warmup, (long long)o->steps);
    return PL_OK;
}

bool pl_train_freezes_head(const pl_recipe *r) {
    int frozen = pl_head_recipe_of(r)->frozen;
    if (frozen != PL_FROZEN_AUTO) return frozen == PL_FROZEN_TRUE;
    return pl_train_backbone(r)->shares_head && pl_train_head_kind(r)->published;
}
