#include "data/tokenizer/spm_shim.h"

extern "C" {
#include "kernels/base/arena.h"
}
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <string>
#include <system_error>
#include <unordered_map>
#include <vector>

struct pl_spm {
    sentencepiece::SentencePieceProcessor processor;
};

namespace {

pl_status fail(char *msg, size_t size, pl_status status, const char *why) {
    if (size > 0) {
        // The library's source position ("./src/x.cc(12) [condition] ") is of no use to a user.
        const char *end = std::strstr(why, ".cc(") ? std::strstr(why, "] ") : nullptr;
        for (const char *next = end; next; next = std::strstr(next + 1, "] "))
            end = next;
        std::snprintf(msg, size, "%s", end && end[2] ? end + 2 : why);
        for (char *p = msg; *p; p++)
            if (static_cast<unsigned char>(*p) < ' ') *p = ' ';
    }
    return status;
}

// The constructor allocates too, and nothrow covers only the object itself.
pl_spm *create() noexcept {
    try {
        return new pl_spm;
    } catch (...) {
        return nullptr;
    }
}

// Runs f, which returns a status of the library, and converts statuses and exceptions to ours with a message.
template <class F> pl_status guarded(char *msg, size_t size, F f) noexcept {
    try {
        const sentencepiece::util::Status status = f();
        return status.ok() ? PL_OK : fail(msg, size, PL_E_INPUT, status.error_message());
    } catch (const std::bad_alloc &) {
        return fail(msg, size, PL_E_MEMORY, "out of memory");
    } catch (const std::system_error &e) { // thread creation failed
        return fail(msg, size, PL_E_IO, e.what());
    } catch (const std::exception &e) {
        return fail(msg, size, PL_E_INPUT, e.what());
    } catch (...) {
        return fail(msg, size, PL_E_INPUT, "unknown error in the SentencePiece library");
    }
}

class Sentences : public sentencepiece::SentenceIterator {
  public:
    Sentences(pl_spm_next next, void *ctx) : next_(next), ctx_(ctx) { Next(); }
    bool                        done() const override { return done_; }
    const std::string          &value() const override { return value_; }
    sentencepiece::util::Status status() const override { return sentencepiece::util::Status(); }
    void                        Next() override {
        const char *s = nullptr;
        size_t      n = 0;
        done_ = !next_(ctx_, &s, &n);
        if (!done_) value_.assign(s, n);
    }

  private:
    pl_spm_next next_;
    void       *ctx_;
    bool        done_ = false;
    std::string value_;
};

template <class T> void *copy_out(const T *data, size_t n) {
    void *p = pl_malloc(n * sizeof(T));
    if (!p) throw std::bad_alloc();
    if (n) std::memcpy(p, data, n * sizeof(T));
    return p;
}

} // namespace

extern "C" {

pl_status pl_spm_open(pl_spm **out, const void *proto, size_t n, char *msg, size_t msg_size) {
    *out = nullptr;
    pl_spm *s = create();
    if (!s) return fail(msg, msg_size, PL_E_MEMORY, "out of memory");
    const pl_status st = guarded(msg, msg_size, [&] {
        return s->processor.LoadFromSerializedProto(absl::string_view(static_cast<const char *>(proto), n));
    });
    if (st != PL_OK) {
        delete s;
        return st;
    }
    *out = s;
    return PL_OK;
}

void pl_spm_close(pl_spm *s) {
    delete s;
}

int pl_spm_vocab_size(const pl_spm *s) {
    return s->processor.GetPieceSize();
}

pl_status pl_spm_encode(const pl_spm *s, const char *text, size_t n_bytes, int32_t **ids, int64_t *n, char *msg,
                        size_t msg_size) {
    static_assert(sizeof(int) == sizeof(int32_t), "ids are int");
    *ids = nullptr;
    *n = 0;
    return guarded(msg, msg_size, [&] {
        std::vector<int>                  v;
        const sentencepiece::util::Status status = s->processor.Encode(absl::string_view(text, n_bytes), &v);
        if (status.ok()) {
            *ids = static_cast<int32_t *>(copy_out(v.data(), v.size()));
            *n = static_cast<int64_t>(v.size());
        }
        return status;
    });
}

pl_status pl_spm_train_proto(const char *const *keys, const char *const *values, int n_options, pl_spm_next next,
                             void *ctx, uint8_t **proto, size_t *n, char *msg, size_t msg_size) {
    *proto = nullptr;
    *n = 0;
    return guarded(msg, msg_size, [&] {
        std::unordered_map<std::string, std::string> options;
        for (int i = 0; i < n_options; i++)
            options[keys[i]] = values[i];
        Sentences                         sentences(next, ctx);
        std::string                       model;
        const sentencepiece::util::Status status =
            sentencepiece::SentencePieceTrainer::Train(options, &sentences, &model);
        if (status.ok()) {
            *proto = static_cast<uint8_t *>(copy_out(model.data(), model.size()));
            *n = model.size();
        }
        return status;
    });
}
}
