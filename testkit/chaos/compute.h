// Computes nodes on a CPU backend in pieces, so that indices are known when their time and bytes are counted.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device.h"

namespace chaos {

// A graph that is filled again and again.
class Piece {
   public:
    Piece() = default;
    ~Piece();
    Piece(const Piece &) = delete;
    Piece &operator=(const Piece &) = delete;
    // nullptr where there is no memory for it.
    abi::Graph *of(abi::Tensor *const *nodes, std::size_t n_nodes);

   private:
    abi::Context *context_ = nullptr;
    abi::Graph *graph_ = nullptr;
    std::size_t capacity_ = 0;
};

// What computing needs of whoever queued the work.
struct Executor {
    Piece &piece;
    std::function<abi::Status(abi::Graph *)> compute;
    std::function<void(const abi::Tensor *)> on_experts;  // an expert matmul whose indices are known now
};

// Graph after graph on the device: counts, declared time, signatures. One stream's work at a time has the device.
abi::Status compute_on(Device &device, const std::vector<abi::Tensor *> &nodes, const Executor &executor, std::string &error);

// One byte, 0 or 1, per element of a row: what the signature of a call changes in the last place.
void signature(int device, std::int64_t n_tokens, std::int64_t k, std::uint8_t *bits, std::size_t n_bits);

}  // namespace chaos
