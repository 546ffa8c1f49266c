#include "repack/interleave.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

namespace slotpool {
namespace {

constexpr int kByte = 8;
constexpr int kTrials = 8;  // a bit that is taken from a wrong place passes one of them by chance
constexpr std::array<std::size_t, 5> kGroups = {1, 2, 4, 8, 16};

bool bit_at(const std::vector<std::uint8_t> &bytes, std::size_t bit) { return (bytes[bit / kByte] >> (bit % kByte) & 1) != 0; }

// Blocks of the rows of a group that are done together: so few that they and what becomes of them stay in the first cache.
constexpr std::size_t kTileBytes = 8U << 10;

struct Tile {
    std::array<const std::uint8_t *, Interleave::kProbeRows> rows;
    std::uint8_t *to;
    std::size_t n_blocks;
    std::size_t block_bytes;
    std::size_t group_bytes;
};

template <class Moves>
void move_all(const Moves &moves, const Tile &tile) {
    for (const auto &move : moves) {
        const std::uint8_t *from = tile.rows[move.row] + move.from;
        std::uint8_t *to = tile.to + move.to;
        for (std::size_t block = 0; block < tile.n_blocks; block++, from += tile.block_bytes, to += tile.group_bytes) {
            auto word = move.inverted;
            std::memcpy(&word, from, sizeof(word));
            word = static_cast<decltype(word)>(word ^ move.inverted);
            std::memcpy(to, &word, sizeof(word));
        }
    }
}

template <class Word>
Word word_of(const std::uint8_t *bytes) {
    Word word;
    std::memcpy(&word, bytes, sizeof(word));
    return word;
}

}  // namespace

// Where each bit of the engine's answer comes from, as if it were a matter of places alone, and which bits zeros turn into ones.
struct Interleave::Probed {
    std::size_t block_bytes;
    std::size_t n_bits;
    std::vector<std::uint32_t> sources;  // by bit of the answer
    std::vector<std::uint8_t> inverted;

    Probed(std::size_t bytes_of_block, const Engine &engine)
        : block_bytes(bytes_of_block), n_bits(kProbeRows * kProbeBlocks * bytes_of_block * kByte), sources(n_bits, 0), inverted(n_bits / kByte) {
        std::vector<std::uint8_t> rows(n_bits / kByte, 0);
        std::vector<std::uint8_t> answer(n_bits / kByte);
        engine(rows.data(), inverted.data());
        // the numbers of the source bits, binary digit by binary digit
        for (std::uint32_t digit = 0; (n_bits - 1) >> digit != 0; digit++) {
            std::fill(rows.begin(), rows.end(), std::uint8_t{0});
            for (std::size_t bit = 0; bit < n_bits; bit++) {
                if ((bit >> digit & 1) != 0) rows[bit / kByte] = static_cast<std::uint8_t>(rows[bit / kByte] | 1U << bit % kByte);
            }
            engine(rows.data(), answer.data());
            for (std::size_t bit = 0; bit < n_bits; bit++) {
                if (bit_at(answer, bit) != bit_at(inverted, bit)) sources[bit] |= 1U << digit;
            }
        }
    }

    bool is_permutation() const {
        std::vector<bool> is_used(n_bits, false);
        for (const std::uint32_t source : sources) {
            if (source >= n_bits || is_used[source]) return false;
            is_used[source] = true;
        }
        return true;
    }

    // Every group of `n_rows` rows and every block is treated like the first.
    bool repeats_after(std::size_t n_rows) const {
        const std::size_t group_bits = n_rows * block_bytes * kByte;
        for (std::size_t bit = 0; bit < n_bits; bit++) {
            const std::size_t group = bit / group_bits / kProbeBlocks;
            const std::size_t block = bit / group_bits % kProbeBlocks;
            const std::size_t first = bit % group_bits;
            const std::size_t moved = (group * n_rows * kProbeBlocks + block) * block_bytes * kByte;
            if (sources[bit] != sources[first] + moved || bit_at(inverted, bit) != bit_at(inverted, first)) return false;
        }
        return true;
    }

    std::uint32_t row_of(std::uint32_t source) const { return static_cast<std::uint32_t>(source / kByte / (kProbeBlocks * block_bytes)); }
    std::uint32_t byte_of(std::uint32_t source) const { return static_cast<std::uint32_t>(source / kByte % (kProbeBlocks * block_bytes)); }
    bool is_whole(std::size_t byte) const {
        const std::uint32_t first = sources[byte * kByte];
        if (first % kByte != 0) return false;
        for (std::uint32_t i = 1; i < kByte; i++) {
            if (sources[byte * kByte + i] != first + i) return false;
        }
        return true;
    }
};

std::unique_ptr<Interleave> Interleave::learn(std::size_t block_bytes, const Engine &engine) {
    const Probed probed(block_bytes, engine);
    if (!probed.is_permutation()) return nullptr;
    const auto *const found = std::find_if(kGroups.begin(), kGroups.end(), [&](std::size_t n_rows) { return probed.repeats_after(n_rows); });
    if (found == kGroups.end()) return nullptr;
    std::unique_ptr<Interleave> made(new Interleave(block_bytes, *found));
    made->compile(probed);
    return made->agrees_with(engine) ? std::move(made) : nullptr;
}

void Interleave::compile(const Probed &probed) {
    const std::size_t group_bytes = n_rows_ * block_bytes_;
    for (std::size_t to = 0; to < group_bytes;) {
        const std::uint32_t first = probed.sources[to * kByte];
        std::size_t n = 0;
        // neighbours that stay neighbours, in one row's block
        while (to + n < group_bytes && probed.is_whole(to + n) && probed.sources[(to + n) * kByte] == first + n * kByte &&
               probed.row_of(probed.sources[(to + n) * kByte]) == probed.row_of(first))
            n++;
        if (n > 0) {
            add_run(static_cast<std::uint32_t>(to), probed.row_of(first), probed.byte_of(first), &probed.inverted[to], n);
            to += n;
            continue;
        }
        Mosaic made{static_cast<std::uint32_t>(to), probed.inverted[to], {}};
        for (int bit = 0; bit < kByte; bit++) {
            const std::uint32_t source = probed.sources[to * kByte + static_cast<std::size_t>(bit)];
            const Part part{probed.row_of(source), probed.byte_of(source), bit - static_cast<int>(source % kByte),
                            static_cast<std::uint8_t>(1U << bit)};
            const auto same = std::find_if(made.parts.begin(), made.parts.end(),
                                           [&](const Part &one) { return one.row == part.row && one.from == part.from && one.shift == part.shift; });
            if (same == made.parts.end()) {
                made.parts.push_back(part);
            } else {
                same->mask = static_cast<std::uint8_t>(same->mask | part.mask);
            }
        }
        mosaics_.push_back(std::move(made));
        to++;
    }
}

void Interleave::add_run(std::uint32_t to, std::uint32_t row, std::uint32_t from, const std::uint8_t *inverted, std::size_t n) {
    while (n > 0) {
        std::uint32_t size = 1;
        if (n >= sizeof(std::uint64_t)) {
            size = sizeof(std::uint64_t);
            eights_.push_back({to, row, from, word_of<std::uint64_t>(inverted)});
        } else if (n >= sizeof(std::uint32_t)) {
            size = sizeof(std::uint32_t);
            fours_.push_back({to, row, from, word_of<std::uint32_t>(inverted)});
        } else if (n >= sizeof(std::uint16_t)) {
            size = sizeof(std::uint16_t);
            twos_.push_back({to, row, from, word_of<std::uint16_t>(inverted)});
        } else {
            ones_.push_back({to, row, from, *inverted});
        }
        to += size;
        from += size;
        inverted += size;
        n -= size;
    }
}

template <class Tile>
void Interleave::compose(const Mosaic &mosaic, const Tile &tile) {
    for (std::size_t block = 0; block < tile.n_blocks; block++) {
        unsigned made = 0;
        for (const Part &part : mosaic.parts) {
            const unsigned byte = tile.rows[part.row][block * tile.block_bytes + part.from];
            made |= (part.shift >= 0 ? byte << part.shift : byte >> -part.shift) & part.mask;
        }
        tile.to[block * tile.group_bytes + mosaic.to] = static_cast<std::uint8_t>(made ^ mosaic.inverted);
    }
}

bool Interleave::agrees_with(const Engine &engine) const {
    std::mt19937 draw(1);
    const std::size_t n_bytes = kProbeRows * kProbeBlocks * block_bytes_;
    std::vector<std::uint8_t> rows(n_bytes);
    std::vector<std::uint8_t> theirs(n_bytes);
    std::vector<std::uint8_t> ours(n_bytes);
    for (int trial = 0; trial < kTrials; trial++) {
        for (std::uint8_t &byte : rows) byte = static_cast<std::uint8_t>(draw());
        engine(rows.data(), theirs.data());
        apply(rows.data(), kProbeRows, kProbeBlocks, ours.data());
        if (ours != theirs) return false;
    }
    return true;
}

// Rows are gathered as they lie first: what was just read is not in the cache, and a walk across rows would wait for every line of it.
void Interleave::apply(const std::uint8_t *rows, std::size_t n_rows, std::size_t n_blocks, std::uint8_t *to) const {
    const std::size_t group_bytes = n_rows_ * block_bytes_;
    const std::size_t row_bytes = n_blocks * block_bytes_;
    const std::size_t most = std::max<std::size_t>(1, kTileBytes / group_bytes);
    std::vector<std::uint8_t> gathered(n_rows_ * row_bytes);
    for (std::size_t row = 0; row < n_rows; row += n_rows_) {
        std::memcpy(gathered.data(), rows + row * row_bytes, gathered.size());
        for (std::size_t block = 0; block < n_blocks; block += most) {
            Tile tile{{}, to, std::min(most, n_blocks - block), block_bytes_, group_bytes};
            for (std::size_t i = 0; i < n_rows_; i++) tile.rows[i] = gathered.data() + i * row_bytes + block * block_bytes_;
            move_all(eights_, tile);
            move_all(fours_, tile);
            move_all(twos_, tile);
            move_all(ones_, tile);
            for (const Mosaic &mosaic : mosaics_) compose(mosaic, tile);
            to += tile.n_blocks * group_bytes;
        }
    }
}

}  // namespace slotpool
