// What may still be taken on Linux: /proc/meminfo, and the limits of this process's control groups, versions 1 and 2.
#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "os/memory.h"

namespace slotpool::os {
namespace {

constexpr std::size_t kMaxFileBytes = 4U << 20;     // mountinfo of a machine with very many mounts
constexpr std::uint64_t kUnlimited = 1ULL << 60;    // version 1 writes "no limit" as a huge number
constexpr std::size_t kMaxLevels = 256;             // of groups inside groups
constexpr std::uint64_t kMaxNumber = kNoLimit / 2;  // sums of two do not overflow

using Number = std::optional<std::uint64_t>;

// What a version of control groups calls its files and the fields of memory.stat. Those of version 1 that count children begin with total_.
struct Names {
    const char *type;        // of the file system
    const char *controller;  // in the options of its mount; empty: one tree for all controllers
    std::vector<const char *> limits;
    const char *usage;
    const char *inactive_cache;
    const char *active_cache;
    const char *mapped;
};

// above memory.high processes are slowed down until they use less: no room for slots
const Names kVersion2 = {"cgroup2", "", {"/memory.max", "/memory.high"}, "/memory.current", "inactive_file", "active_file", "file_mapped"};
const Names kVersion1 = {
    "cgroup", "memory", {"/memory.limit_in_bytes"}, "/memory.usage_in_bytes", "total_inactive_file", "total_active_file", "total_mapped_file"};

struct Mount {
    std::string root;   // the group that is seen at the mount's point
    std::string point;  // where in the file system
    std::string type;
    std::string options;
};

// At most kMaxFileBytes; empty when it cannot be read.
std::string read_text(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    std::string text;
    char part[4096];
    while (text.size() < kMaxFileBytes && (in.read(part, sizeof(part)), in.gcount() > 0)) text.append(part, static_cast<std::size_t>(in.gcount()));
    return text;
}

// The word that `text` begins with, as a number; nothing where it is none, or too large.
Number number(const std::string &text) {
    const std::string word = text.substr(0, text.find_first_of(" \t\n"));
    if (word.empty() || word.size() > 19 || word.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
    std::uint64_t value = 0;
    for (char digit : word) value = value * 10 + static_cast<std::uint64_t>(digit - '0');
    return value <= kMaxNumber ? Number(value) : std::nullopt;
}

// The number behind `key` at the beginning of a line.
Number field(const std::string &text, const std::string &key) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        if (line.compare(0, key.size(), key) != 0) continue;
        const std::size_t begin = line.find_first_not_of(" \t", key.size());
        if (begin != std::string::npos && begin > key.size()) return number(line.substr(begin));
    }
    return std::nullopt;
}

bool lists(const std::string &words, const std::string &word) { return ("," + words + ",").find("," + word + ",") != std::string::npos; }

// mountinfo writes blanks and backslashes as \ooo
std::string unescaped(const std::string &text) {
    const auto is_octal = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '7'; };
    std::string out;
    for (std::size_t i = 0; i < text.size(); i++) {
        const bool is_escape = text[i] == '\\' && is_octal(i + 1) && is_octal(i + 2) && is_octal(i + 3);
        out += is_escape ? static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0')) : text[i];
        i += is_escape ? 3 : 0;
    }
    return out;
}

// A line is: id parent device root point options [optional fields] - type source options
std::vector<Mount> read_mounts(const std::string &text) {
    std::vector<Mount> mounts;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        Mount mount;
        std::string word;
        std::istringstream words(line);
        words >> word >> word >> word >> mount.root >> mount.point;
        while (words >> word && word != "-") {
        }
        if (!(words >> mount.type >> word >> mount.options)) continue;
        mount.root = unescaped(mount.root);
        mount.point = unescaped(mount.point);
        mounts.push_back(mount);
    }
    return mounts;
}

// This process's group in the tree of a version, from a line NUMBER:CONTROLLERS:PATH of /proc/self/cgroup.
std::optional<std::string> group_of_process(const std::string &text, const Names &names) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (*names.controller == '\0' ? controllers.empty() : lists(controllers, names.controller)) return line.substr(second + 1);
    }
    return std::nullopt;
}

// The way from a mount's root down to `group`, "" where it is the root itself; nothing where the group does not lie below it.
std::optional<std::string> below(const std::string &root, const std::string &group) {
    const std::string prefix = root == "/" ? "" : root;
    if (group.compare(0, prefix.size(), prefix) != 0) return std::nullopt;
    const std::string rest = group.substr(prefix.size());
    if (rest.empty() || rest == "/") return "";
    // a group outside of the namespace is written with /.., which no mount shows
    return rest[0] == '/' && (rest + "/").find("/../") == std::string::npos ? std::optional(rest) : std::nullopt;
}

// Page cache that can go. Mapped pages are code in use: without them the process would read its own program again and again.
std::uint64_t spare_cache(const std::string &stat, const Names &names) {
    const std::uint64_t cache = field(stat, names.inactive_cache).value_or(0) + field(stat, names.active_cache).value_or(0);
    return cache - std::min(cache, field(stat, names.mapped).value_or(0));
}

std::uint64_t headroom(const std::string &folder, const Names &names) {
    std::uint64_t limit = kNoLimit;
    for (const char *name : names.limits) limit = std::min(limit, number(read_text(folder + name)).value_or(kNoLimit));
    if (limit >= kUnlimited) return kNoLimit;
    const Number usage = number(read_text(folder + names.usage));
    if (!usage) return kNoLimit;
    const std::uint64_t in_use = *usage - std::min(*usage, spare_cache(read_text(folder + "/memory.stat"), names));
    return limit - std::min(limit, in_use);
}

// A limit of any group above holds as well.
std::uint64_t smallest_headroom(const std::string &point, std::string group, const Names &names) {
    std::uint64_t smallest = headroom(point, names);
    for (std::size_t level = 0; level < kMaxLevels && !group.empty(); level++) {
        smallest = std::min(smallest, headroom(point + group, names));
        group.resize(group.rfind('/'));
    }
    return smallest;
}

bool shows(const Mount &mount, const Names &names) {
    return mount.type == names.type && (*names.controller == '\0' || lists(mount.options, names.controller));
}

std::uint64_t headroom_of_process(const std::string &root, const std::vector<Mount> &mounts, const std::string &groups, const Names &names) {
    const std::optional<std::string> group = group_of_process(groups, names);
    std::uint64_t smallest = kNoLimit;
    std::uint64_t elsewhere = kNoLimit;
    bool is_found = false;
    for (const Mount &mount : mounts) {
        if (!group || !shows(mount, names)) continue;
        const std::optional<std::string> way = below(mount.root, *group);
        is_found |= way.has_value();
        if (way) smallest = std::min(smallest, smallest_headroom(root + mount.point, *way, names));
        if (!way) elsewhere = std::min(elsewhere, headroom(root + mount.point, names));
    }
    // a container that was given a part of the tree under another name: what it is shown is its own group, or one above
    return is_found ? smallest : elsewhere;
}

std::uint64_t host_memory(const std::string &root) {
    const Number kib = field(read_text(root + "/proc/meminfo"), "MemAvailable:");
    return kib && *kib < kUnlimited / 1024 ? *kib * 1024 : kNoLimit;
}

}  // namespace

AvailableMemory available_memory(const std::string &root) {
    const std::vector<Mount> mounts = read_mounts(read_text(root + "/proc/self/mountinfo"));
    const std::string groups = read_text(root + "/proc/self/cgroup");
    AvailableMemory found;
    found.host = host_memory(root);
    found.cgroup = std::min(headroom_of_process(root, mounts, groups, kVersion1), headroom_of_process(root, mounts, groups, kVersion2));
    return found;
}

}  // namespace slotpool::os
