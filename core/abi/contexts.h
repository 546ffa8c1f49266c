// Contexts for the check. The argument of ggml_init goes by value: nothing but its use tells which word of it means what.
#pragma once

#include <cstddef>
#include <vector>

#include "abi/findings.h"
#include "abi/ggml_api.h"

namespace slotpool::abi {

class Contexts : protected Findings {
   public:
    Contexts(const Api &api, std::string &error) : Findings(error), api_(api) {}

   protected:
    // Each word is the address of a room: whichever ggml takes for its memory is memory, and which it took shows. Read as a
    // size such a word is large enough, and its lowest byte, read as a flag, is false.
    bool init_words() {
        std::vector<char> memory((kWords + 1) * kRoomBytes);
        const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(memory.data()) + 255) / 256 * 256;
        InitWords words{};
        for (std::size_t i = 0; i < kWords; i++) words.word[i] = first + i * kRoomBytes;
        Context *ctx = init(words);
        Tensor *t = ctx == nullptr ? nullptr : f32(ctx, 1);
        if (!made("ggml_init", ctx) || !made("ggml_new_tensor_4d", t)) return false;
        const std::size_t room = (reinterpret_cast<std::uintptr_t>(t) - first) / kRoomBytes;
        if (!equal("parameter mem_buffer", "word 1", room < kWords ? "word " + std::to_string(room) : "none of them")) return false;
        api_.free(ctx);
        return true;
    }

    // Runs `use` with a context for tensors without data. All words but the three known ones are zero.
    template <class Use>
    bool with_context(Use use) {
        std::vector<std::max_align_t> memory(kRoomBytes / sizeof(std::max_align_t));
        Context *ctx = init({{kRoomBytes, reinterpret_cast<std::uintptr_t>(memory.data()), 1}});
        const bool ok = made("ggml_init", ctx) && use(ctx);
        if (ok) api_.free(ctx);
        return ok;
    }

    Tensor *f32(Context *ctx, std::int64_t ne0, std::int64_t ne1 = 1, std::int64_t ne2 = 1, std::int64_t ne3 = 1) {
        return api_.new_tensor_4d(ctx, kTypeF32, ne0, ne1, ne2, ne3);
    }

    const Api &api_;

   private:
    static constexpr std::size_t kRoomBytes = 16384;
    static constexpr std::size_t kWords = 8;
    // More than InitParams: what ggml would read behind it is known too.
    struct InitWords {
        std::uintptr_t word[kWords];
    };

    Context *init(const InitWords &words) {
        static_assert(sizeof(InitParams) > 2 * sizeof(void *), "passed in memory, like anything larger");
        return reinterpret_cast<Context *(*)(InitWords)>(reinterpret_cast<void *>(api_.init))(words);
    }
};

}  // namespace slotpool::abi
