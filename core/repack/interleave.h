// How a layout of the engine's own mixes the blocks of neighbouring rows, learned by asking the engine.
//
// Such a layout takes block x of R rows and makes a group of R blocks of them, group after group. Inside a group bits change places, and
// some are inverted. Which do is found by repacking a few patterns, and then compared on random ones; the engine's own way could be called
// instead, but it writes a line into the host's log for every call, which may be Python, and from our threads.
//
// Knows no tensors and no files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace slotpool {

class Interleave {
   public:
    static constexpr std::size_t kProbeRows = 16;  // a multiple of every R that is looked for
    static constexpr std::size_t kProbeBlocks = 2;
    // The engine's own: kProbeRows rows of kProbeBlocks blocks each, into as many bytes.
    using Engine = std::function<void(const std::uint8_t *rows, std::uint8_t *to)>;

    // nullptr where the engine does anything else with the bits.
    static std::unique_ptr<Interleave> learn(std::size_t block_bytes, const Engine &engine);

    // Rows that belong together: R.
    std::size_t n_rows() const { return n_rows_; }
    // Rows of `n_blocks` blocks each, a multiple of R; `to` has room for as many bytes. Safe to call from several threads at a time.
    void apply(const std::uint8_t *rows, std::size_t n_rows, std::size_t n_blocks, std::uint8_t *to) const;

   private:
    // So many bytes that stay together, and which bits of them are inverted.
    template <class Word>
    struct Move {
        std::uint32_t to;
        std::uint32_t row;
        std::uint32_t from;  // in the row's block
        Word inverted;
    };
    // A byte that is put together from bits of others.
    struct Part {
        std::uint32_t row;
        std::uint32_t from;
        int shift;  // to the left; negative: to the right
        std::uint8_t mask;
    };
    struct Mosaic {
        std::uint32_t to;
        std::uint8_t inverted;
        std::vector<Part> parts;
    };
    struct Probed;

    Interleave(std::size_t block_bytes, std::size_t n_rows) : block_bytes_(block_bytes), n_rows_(n_rows) {}
    void compile(const Probed &probed);
    void add_run(std::uint32_t to, std::uint32_t row, std::uint32_t from, const std::uint8_t *inverted, std::size_t n);
    template <class Tile>
    static void compose(const Mosaic &mosaic, const Tile &tile);
    bool agrees_with(const Engine &engine) const;

    std::size_t block_bytes_;
    std::size_t n_rows_;
    std::vector<Move<std::uint64_t>> eights_;
    std::vector<Move<std::uint32_t>> fours_;
    std::vector<Move<std::uint16_t>> twos_;
    std::vector<Move<std::uint8_t>> ones_;
    std::vector<Mosaic> mosaics_;
};

}  // namespace slotpool
