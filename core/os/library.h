// Loaded libraries of this process: what depends on the operating system about them is only here.
#pragma once

#include <string>

namespace slotpool::os {

// Handle of the already loaded library that holds `address`, for find_symbol(). nullptr when there is none.
void *library_of(const void *address);
// Path of the library that holds `address`; empty when unknown.
std::string path_of(const void *address);
// Handle of an already loaded library whose file name starts with `prefix`; nullptr when none is loaded.
void *loaded_library(const char *prefix);
// Loads a library by path. On failure returns nullptr and says why in `error`.
void *open_library(const char *path, std::string &error);
// Looks `name` up in the library behind `handle` and in what that library depends on.
void *find_symbol(void *handle, const char *name);

}  // namespace slotpool::os
