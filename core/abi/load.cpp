// Fills the table of ggml functions from one library; a missing symbol is an error that names it.
#include "abi/ggml_api.h"
#include "os/library.h"

namespace slotpool::abi {

bool load(void *handle, Api &api, std::string &error) {
#define SLOTPOOL_FIND(member, symbol, signature)                                           \
    api.member = reinterpret_cast<decltype(api.member)>(os::find_symbol(handle, #symbol)); \
    if (api.member == nullptr) {                                                           \
        error = "Expected ggml to export " #symbol ", found no such symbol";               \
        return false;                                                                      \
    }
    SLOTPOOL_GGML_FUNCTIONS(SLOTPOOL_FIND)
#undef SLOTPOOL_FIND
    return true;
}

}  // namespace slotpool::abi
