// Predicts the cost of training a drafter: seconds, memory of a device, bytes over the network, disk.
//
//   M      samples of L tokens, seen E times           S, B   slots of a step, rows of a slot (train.slots, .slot_rows)
//   R      ranks (train/loop/slots.h: rank 0 works on s of the S slots)
//   N      trained elements of the drafter (pl_params_count of its own parameter list); N_m of them are in products, of
//          these N_f in fc, which each row reads once                              (infer/drafter/backbone.h)
//   V d    the target's output matrix; W, W_a: elements of the target's matrices, and those that one token reads
//   K      steps of the training-time test (train/task/unroll.h)
//
//   steps    = ceil(E M L / (S B))
//   flops    = Q (6 K (N_m - N_f) + 2 V d) + 4 B N_f + 24 (B - Q) nkv hd d + 12 nh hd sum_k (Q (L + 1) / 2 + k Q)
//              of a slot, of whose rows Q = share B are learned from (train/task/rows.h): each product once forward,
//              twice backward; fc's features and the teacher are constants: bench step's count
//   compute  = s flops / F                            F: flop/s that a step reaches, measured or assumed
//   sent     = 2 (R - 1) / R 4 N                      bytes of a rank and step: kernels/comm/comm.h
//   network  = sent / (c bandwidth) + 2 ceil(4 N / round) latency  a round of the transport is summed in two exchanges;
//              c: the payload's share of a link's bytes, over TCP 1448 / 1538 of an Ethernet frame at 1,500 bytes
//   hidden   = min(V d / N network, T_h + T_b - T_h min(1, round / (4 V d)))         if sums overlap with backward
//              (kernels/comm/summing.h: CPUs), else 0. Backward of a rank's last slot begins with the head, T_h =
//              4 K V d B / F, whose rows are complete one after another; T_b: the rest of backward, whose gradients
//              accumulate over the steps of the unroll until its end, so that they are summed after it
//   step     = compute + network - hidden
//
//   disk     = M L (sum over the columns of data/dataset/columns.h of width * bytes) + 28 M       offline; bounded: of
//              the samples that are stored at a time; online: none. (28: doc_offsets and the lists of pl_doc_about.)
//              Bytes of features: 2, or 33 for 32 (data.feature_format: int8, data/dataset/mxint8.h)
//   making   = M L / R max(2 W_a / F, min(W, W_d + P w) / (P bandwidth of memory) bytes)        the target's answers,
//              decoded in P sessions at once; W_d: its matrices but the experts, w: the experts of one token. Caches
//              are left out, prompts cost as much as decoded tokens. Ranks share the answers. Offline: once;
//              bounded and online: E times.
//   memory   = 4 N (2 + 3 + levels) + 2 (2 V d) + activations     masters, moments, gradients, working copy, partial
//              sums of slots (train/loop/slots.h); the target's embedding and output matrix in bf16; bounded, online:
//              all of it.
//              activations = 8 B K (14 d + 2 nh hd + 4 nkv hd + 4 I) + 4 B (A d + d) + min(1 GiB, 4 B K V): tensors
//              that a step's ops keep for backward and their gradients, inputs of a slot, logits that are kept
// Slots take whole documents while they fit; the rows that short ones leave empty cost as much as full ones.
// Times are those of steps alone: evaluations, checkpoints and reading data are not included.
#ifndef PL_TRAIN_PLAN_H
#define PL_TRAIN_PLAN_H

#include "checkpoints/hf.h"
#include "data/dataset/dataset.h"
#include "kernels/backend.h"

typedef enum pl_train_mode { PL_TRAIN_OFFLINE, PL_TRAIN_BOUNDED, PL_TRAIN_ONLINE, PL_TRAIN_MODES } pl_train_mode;
extern const char *const pl_train_mode_names[PL_TRAIN_MODES];

// Sizes of the models, independent of the machine.
typedef struct pl_train_sizes {
    double  trained, products, fuse, head;   // N, N_m, N_f, V d
    double  heads, kv, width, inter, taps;   // nh hd, nkv hd, d, I, A of the drafter
    double  target, dense, per_token, vocab; // W, W_d, w, V
    int64_t row_bytes;                       // of a dataset
} pl_train_sizes;

// Computes the sizes of a full-head EAGLE-3 drafter for the target of this config; its dataset stores features in
// `format`. PL_E_UNSUPPORTED, PL_E_MEMORY.
pl_status pl_train_sizes_of(pl_train_sizes *s, const pl_hf_config *target, pl_feature_format format,
                            const pl_backend *be, pl_err *err);

typedef struct pl_train_setup {
    double samples, tokens, epochs, window; // M, L, E; window: samples on disk at a time (bounded)
    double supervised;                      // share of rows that steps learn from
    int    slots, slot_rows, unroll, sessions;
    bool   beside;  // sums overlap with the backward of a rank's last slot
    bool   sharded; // masters and moments are sharded over ranks: 3 / R for 3 in `memory`, the same bytes are sent
    double flops, memory_bandwidth, memory; // of a device: achieved flop/s, bytes/s, bytes
    double network, latency, round;         // a rank's bytes/s of payload, seconds, bytes per round of summing
} pl_train_setup;

typedef struct pl_train_plan {
    double      steps;
    double      compute, network, hidden, step; // seconds of one step: compute, network, their overlap, in all
    double      sent, sent_all;                 // bytes per rank and step; of all ranks and steps
    double      efficiency;                     // speed relative to R times one rank
    double      training, making;               // total seconds
    double      disk, memory;                   // bytes; memory: of a training device
    int         target_devices;                 // devices that hold the target to answer prompts
    const char *limit;                          // the bottleneck
} pl_train_plan;

// Fills in the plan. PL_E_USAGE: some ranks would have no slot.
pl_status pl_train_predict(pl_train_plan *p, const pl_train_sizes *z, const pl_train_setup *s, pl_train_mode mode,
                           int ranks, pl_err *err);

#endif
