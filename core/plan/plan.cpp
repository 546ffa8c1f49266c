#include "plan/plan.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <locale>
#include <sstream>

namespace slotpool {
namespace {

constexpr long long kMaxExperts = 1 << 16;
constexpr long long kMaxLayers = 1 << 16;
constexpr long long kMaxSlabBytes = 1LL << 40;
constexpr long long kMaxBytes = 1LL << 62;  // of a file or of memory: sums of two do not overflow
constexpr std::size_t kMaxFiles = 1 << 16;
constexpr std::size_t kMaxPathBytes = 4096;
constexpr std::size_t kMaxDevices = 6;  // a scheduler takes 16 backends: two for each of these, and three
constexpr std::size_t kMaxQuoted = 80;
constexpr long long kMillion = 1'000'000;
constexpr const char *kBlanks = " \t\r\v\f";

using Words = std::vector<std::string>;

Words split(const std::string &line) {
    Words words;
    for (std::size_t begin = line.find_first_not_of(kBlanks); begin != std::string::npos;) {
        const std::size_t end = std::min(line.find_first_of(kBlanks, begin), line.size());
        words.push_back(line.substr(begin, end - begin));
        begin = line.find_first_not_of(kBlanks, end);
    }
    return words;
}

// Where word number `index` begins in a line that has it.
std::size_t word_begin(const std::string &line, int index) {
    std::size_t begin = line.find_first_not_of(kBlanks);
    for (; index > 0; index--) begin = line.find_first_not_of(kBlanks, line.find_first_of(kBlanks, begin));
    return begin;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// Fit for one line of any terminal: a plan may hold anything.
std::string printable(std::string text) {
    for (char &c : text) {
        if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
    }
    return text;
}

std::string quoted(const std::string &found) {
    return "\"" + printable(found.size() <= kMaxQuoted ? found : found.substr(0, kMaxQuoted) + "...") + "\"";
}

// The host program may have set a locale in which 0.97 is no number, so strtod will not do. Digits and a point, as Python writes them.
bool decimal(const std::string &word, double &out) {
    std::istringstream in(word);
    in.imbue(std::locale::classic());
    return static_cast<bool>(in >> out) && in.peek() == std::istringstream::traits_type::eof();
}

class PlanReader {
   public:
    PlanReader(Plan &plan, std::string &error) : plan_(plan), error_(error) {}

    bool read(const std::string &text) {
        std::istringstream in(text);
        for (std::string line; std::getline(in, line);) {
            line_number_++;
            if (!statement(line)) return false;
        }
        if (!has_header_) return fail("\"slotpool-plan 1\"", "no such line");
        return true;
    }

   private:
    bool fail(const std::string &expected, const std::string &found) {
        error_ = "Expected " + expected + ", found " + found + " - at line " + std::to_string(line_number_) + " of the plan";
        return false;
    }

    bool statement(const std::string &line) {
        const Words words = split(line);
        if (words.empty() || words[0][0] == '#') return true;
        if (!has_header_) return header(words, line);
        if (words[0] == "policy") return policy(words, line);
        if (words[0] == "poison") return poison(words, line);
        if (words[0] == "bypass") return bypass(words, line);
        if (words[0] == "repack") return repack(words, line);
        if (words[0] == "misses") return misses(words, line);
        if (words[0] == "prefill") return prefill(words, line);
        if (words[0] == "contexts") return contexts(words, line);
        if (words[0] == "device") return device(words);
        if (words[0] == "memory") return memory(words);
        if (words[0] == "file") return file(words, line);
        if (words[0] == "group") return group(words);
        if (words[0] == "tensor") return tensor(words);
        if (words[0] == "bias") return bias(words, line);
        if (words[0] == "off") return off(words, line);
        if (words[0] == "warm") return warm(words);
        if (words[0] == "pin") return pin(words);
        if (words[0] == "heat") return heat(words, line);
        if (words[0] == "report") return report(words, line);
        return fail(
            "a statement (policy, poison, bypass, repack, misses, prefill, contexts, device, memory, file, group, tensor, bias, off, warm, pin, "
            "heat, report)",
            quoted(words[0]));
    }

    bool header(const Words &words, const std::string &line) {
        if (words.size() != 2 || words[0] != "slotpool-plan") return fail("\"slotpool-plan 1\"", quoted(line));
        if (words[1] != "1") return fail("plan version 1", "version " + quoted(words[1]));
        has_header_ = true;
        return true;
    }

    bool policy(const Words &words, const std::string &line) {
        const bool is_known = words.size() >= 2 && (words[1] == "lru" || words[1] == "decay" || words[1] == "follow");
        if (!is_known || words.size() > 3) {
            return fail("policy lru, policy decay [DECAY] or policy follow [DECAY]", words.size() < 2 ? "no name" : quoted(line));
        }
        plan_.policy = words[1];
        if (words.size() == 2) return true;
        const bool is_share = decimal(words[2], plan_.decay) && plan_.decay > 0.0 && plan_.decay <= 1.0;
        return is_share || fail("a decay above 0 and at most 1", quoted(words[2]));
    }

    bool poison(const Words &words, const std::string &line) {
        if (words.size() != 2 || (words[1] != "on" && words[1] != "off")) return fail("poison on or poison off", quoted(line));
        plan_.poison = words[1] == "on";
        return true;
    }

    bool bypass(const Words &words, const std::string &line) {
        if (words.size() != 2 || (words[1] != "on" && words[1] != "off")) return fail("bypass on or bypass off", quoted(line));
        plan_.is_bypassed = words[1] == "on";
        return true;
    }

    bool repack(const Words &words, const std::string &line) {
        if (words.size() != 2 || (words[1] != "on" && words[1] != "off")) return fail("repack on or repack off", quoted(line));
        plan_.is_repacked = words[1] == "on";
        return true;
    }

    bool misses(const Words &words, const std::string &line) {
        constexpr std::array<const char *, 4> kModes = {"copy", "cpu", "auto", "frozen"};  // in the order of Misses
        const auto mode = words.size() < 2 ? kModes.end() : std::find(kModes.begin(), kModes.end(), words[1]);
        const bool has_way = words.size() == 3;
        if (mode == kModes.end() || words.size() > 3 || (has_way && words[2] != "background" && words[2] != "settled")) {
            return fail("misses copy|cpu|auto|frozen [background|settled]", quoted(line));
        }
        plan_.misses = static_cast<Misses>(mode - kModes.begin());
        plan_.is_settled = has_way && words[2] == "settled";
        return true;
    }

    bool prefill(const Words &words, const std::string &line) {
        constexpr std::array<const char *, 3> kWays = {"bypass", "stream", "auto"};  // in the order of Prefill
        const auto way = words.size() != 2 ? kWays.end() : std::find(kWays.begin(), kWays.end(), words[1]);
        if (way == kWays.end()) return fail("prefill bypass|stream|auto", quoted(line));
        plan_.prefill = static_cast<Prefill>(way - kWays.begin());
        return true;
    }

    bool contexts(const Words &words, const std::string &line) {
        if (words.size() != 2 || (words[1] != "all" && words[1] != "first")) return fail("contexts all or contexts first", quoted(line));
        plan_.only_first_context = words[1] == "first";
        return true;
    }

    bool device(const Words &words) {
        PlannedDevice made;
        long long slots = 0;
        if (words.size() != 5) return fail("device NAME slots= budget= rail=", std::to_string(words.size() - 1) + " fields");
        if (!plan_.groups.empty()) return fail("devices before groups", "a device");
        if (plan_.devices.size() == kMaxDevices) return fail("at most 6 devices", "another");
        made.name = words[1];
        if (made.name == "CPU" || made.name == "auto") return fail("the name of a device other than the CPU", quoted(made.name));
        if (plan_.find_device(made.name) != nullptr) return fail("each device once", quoted(made.name) + " again");
        if (!number(words[2], "slots", 0, kMaxExperts, slots) || !bytes_or_auto(words[3], "budget", made.is_budget_auto, made.budget) ||
            !bytes_or_auto(words[4], "rail", made.is_rail_auto, made.rail)) {
            return false;
        }
        made.slots = static_cast<int>(slots);
        plan_.devices.push_back(made);
        return true;
    }

    bool memory(const Words &words) {
        PlannedMemory made;
        long long reserve = 0;
        if (words.size() != 4) return fail("memory budget= rail= reserve=", std::to_string(words.size() - 1) + " fields");
        if (has_memory_) return fail("one line for memory", "another");
        if (!bytes_or_auto(words[1], "budget", made.is_budget_auto, made.budget) || !bytes_or_auto(words[2], "rail", made.is_rail_auto, made.rail) ||
            !number(words[3], "reserve", 0, kMaxBytes, reserve)) {
            return false;
        }
        made.reserve = static_cast<std::uint64_t>(reserve);
        plan_.memory = made;
        has_memory_ = true;
        return true;
    }

    bool file(const Words &words, const std::string &line) {
        PlannedFile made;
        long long size = 0;
        long long mtime_ns = 0;
        if (words.size() < 5) return fail("file INDEX size= mtime= path=", std::to_string(words.size() - 1) + " fields");
        if (!plan_.tensors.empty()) return fail("files before tensors", "a file");
        if (plan_.files.size() == kMaxFiles) return fail("at most 65536 files", "another");
        const std::string index = std::to_string(plan_.files.size());
        if (words[1] != index) return fail(std::string("file ") + index, "file " + quoted(words[1]));
        constexpr auto kAnyTime = std::numeric_limits<long long>();
        if (!number(words[2], "size", 0, kMaxBytes, size) || !number(words[3], "mtime", kAnyTime.min(), kAnyTime.max(), mtime_ns)) return false;
        if (!path(line.substr(word_begin(line, 4)), made.path)) return false;
        made.size = static_cast<std::uint64_t>(size);
        made.mtime_ns = mtime_ns;
        plan_.files.push_back(made);
        return true;
    }

    // A path is the rest of its line as it is, so a blank at its end counts, and so would the line end of another system.
    bool path(const std::string &rest, std::string &out) {
        constexpr std::size_t kKey = 5;
        if (rest.compare(0, kKey, "path=") != 0) return fail("path=", quoted(rest));
        out = rest.substr(kKey);
        if (out.empty() || out.size() > kMaxPathBytes) return fail("a path of 1 to 4096 bytes", std::to_string(out.size()) + " bytes");
        return std::none_of(out.begin(), out.end(), is_control) || fail("a path without control characters", quoted(out));
    }

    bool group(const Words &words) {
        PlannedGroup made;
        long long layer = 0;
        long long slots = 0;
        long long n_expert = 0;
        if (words.size() != 6 && words.size() != 7)
            return fail("group layer= pass= device= slots= n_expert= [claim=]", std::to_string(words.size() - 1) + " fields");
        if (!number(words[1], "layer", 0, kMaxLayers, layer) || !text(words[2], "pass", made.pass) || !text(words[3], "device", made.device) ||
            !number(words[4], "slots", made.device == "CPU" ? 1 : 0, kMaxExperts, slots) || !number(words[5], "n_expert", 1, kMaxExperts, n_expert)) {
            return false;
        }
        const bool is_known = made.device == "CPU" || (made.device == "auto" && !plan_.devices.empty()) || plan_.find_device(made.device) != nullptr;
        if (!is_known) return fail("CPU, auto or a device that has a line of its own", "device " + quoted(made.device));
        if (slots > n_expert) return fail("at most n_expert slots", std::to_string(slots) + " slots for " + std::to_string(n_expert) + " experts");
        if (words.size() == 7 && !claim(words[6], made.claim)) return false;
        made.layer = static_cast<int>(layer);
        made.slots = static_cast<int>(slots);
        made.n_expert = static_cast<int>(n_expert);
        plan_.groups.push_back(made);
        return true;
    }

    bool claim(const std::string &word, Claim &out) {
        if (word != "claim=whole" && word != "claim=explicit") return fail("claim=whole or claim=explicit", quoted(word));
        out = word == "claim=whole" ? Claim::whole : Claim::stated;
        return true;
    }

    bool tensor(const Words &words) {
        PlannedTensor made;
        long long slab = 0;
        if (plan_.groups.empty()) return fail("a group before its tensors", "a tensor");
        if (words.size() != 4 && words.size() != 6) {
            return fail("tensor NAME role= slab= [file= offset=]", std::to_string(words.size() - 1) + " fields");
        }
        if (!text(words[2], "role", made.role) || !number(words[3], "slab", 1, kMaxSlabBytes, slab)) return false;
        made.name = words[1];
        made.slab_bytes = static_cast<std::size_t>(slab);
        if (!place(words, made)) return false;
        made.group = static_cast<int>(plan_.groups.size()) - 1;
        const int index = static_cast<int>(plan_.tensors.size());
        if (plan_.biases.count(made.name) != 0 || !plan_.by_name.emplace(made.name, index).second)
            return fail("each tensor once", quoted(made.name) + " again");
        plan_.groups.back().tensors.push_back(index);
        plan_.tensors.push_back(made);
        return true;
    }

    bool bias(const Words &words, const std::string &line) {
        if (words.size() != 2) return fail("bias NAME", quoted(line));
        if (plan_.groups.empty()) return fail("a group before its biases", "a bias");
        const int group = static_cast<int>(plan_.groups.size()) - 1;
        const bool is_new = plan_.by_name.count(words[1]) == 0 && plan_.biases.emplace(words[1], group).second;
        return is_new || fail("each tensor once", quoted(words[1]) + " again");
    }

    bool off(const Words &words, const std::string &line) {
        if (words.size() < 3) return fail("off NAME REASON", quoted(line));
        plan_.off.push_back({words[1], line.substr(word_begin(line, 2))});
        return true;
    }

    bool warm(const Words &words) {
        if (plan_.groups.empty()) return fail("a group before what it begins with", "warm");
        PlannedGroup &group = plan_.groups.back();
        if (words.size() < 2 || !group.warm.empty()) return fail("one line of experts for a group", words.size() < 2 ? "none" : "another");
        if (words.size() - 1 > static_cast<std::size_t>(group.n_expert)) return fail("at most n_expert experts", std::to_string(words.size() - 1));
        std::vector<bool> is_known(static_cast<std::size_t>(group.n_expert), false);
        for (std::size_t i = 1; i < words.size(); i++) {
            if (!expected(words[i], group, is_known)) return false;
        }
        return true;
    }

    // EXPERT:MILLIONTHS, no hotter than the one before.
    bool expected(const std::string &word, PlannedGroup &group, std::vector<bool> &is_known) {
        const std::size_t colon = word.find(':');
        if (colon == std::string::npos) return fail("EXPERT:MILLIONTHS", quoted(word));
        long long expert = 0;
        long long millionths = 0;
        const long long most = group.warm.empty() ? kMillion : group.warm.back().millionths;
        if (!whole(word.substr(0, colon), "an expert", 0, group.n_expert - 1, expert)) return false;
        if (!whole(word.substr(colon + 1), "millionths, the hottest first,", 0, most, millionths)) return false;
        if (is_known[static_cast<std::size_t>(expert)]) return fail("each expert once", std::to_string(expert) + " again");
        is_known[static_cast<std::size_t>(expert)] = true;
        group.warm.push_back({static_cast<int>(expert), static_cast<int>(millionths)});
        return true;
    }

    bool pin(const Words &words) {
        long long share = 0;
        long long slots = 0;
        long long spare = 0;
        if (words.size() != 4) return fail("pin share= slots= spare=", std::to_string(words.size() - 1) + " fields");
        if (has_pin_) return fail("one line of pins", "another");
        if (!number(words[1], "share", 0, kMillion, share) || !number(words[2], "slots", 0, kMaxExperts, slots) ||
            !number(words[3], "spare", 1, kMaxExperts, spare)) {
            return false;
        }
        plan_.pin = {static_cast<int>(share), static_cast<int>(slots), static_cast<int>(spare)};
        has_pin_ = true;
        return true;
    }

    bool heat(const Words &words, const std::string &line) {
        if (words.size() != 2 || (words[1] != "on" && words[1] != "off")) return fail("heat on or heat off", quoted(line));
        plan_.has_heat_report = words[1] == "on";
        return true;
    }

    bool report(const Words &words, const std::string &line) {
        if (!plan_.report.empty()) return fail("one line for the report", "another");
        return path(words.size() < 2 ? "" : line.substr(word_begin(line, 1)), plan_.report);
    }

    // Where the experts lie: all tensors have a file, or none has.
    bool place(const Words &words, PlannedTensor &made) {
        const std::size_t n_files = plan_.files.size();
        if (words.size() == 4) return n_files == 0 || fail("a file for every tensor", "none for " + quoted(made.name));
        if (n_files == 0) return fail("files before a tensor with a file", "none");
        long long index = 0;
        long long offset = 0;
        if (!number(words[4], "file", 0, static_cast<long long>(n_files) - 1, index) || !number(words[5], "offset", 0, kMaxBytes, offset))
            return false;
        made.file = static_cast<int>(index);
        made.offset = static_cast<std::uint64_t>(offset);
        const std::uint64_t size = plan_.files[static_cast<std::size_t>(index)].size;
        // at most 2^62 + 2^56: every factor is limited
        const std::uint64_t end = made.offset + made.slab_bytes * static_cast<std::uint64_t>(plan_.groups.back().n_expert);
        return end <= size || fail("experts inside their file", "their end at byte " + std::to_string(end) + " of " + std::to_string(size));
    }

    bool bytes_or_auto(const std::string &word, const char *key, bool &is_auto, std::uint64_t &out) {
        long long bytes = 0;
        is_auto = word == std::string(key) + "=auto";
        if (!is_auto && !number(word, key, 0, kMaxBytes, bytes)) return false;
        out = static_cast<std::uint64_t>(bytes);
        return true;
    }

    bool text(const std::string &word, const char *key, std::string &out) {
        const std::string prefix = std::string(key) + "=";
        if (word.rfind(prefix, 0) != 0 || word.size() == prefix.size()) return fail(prefix, quoted(word));
        out = word.substr(prefix.size());
        return true;
    }

    bool number(const std::string &word, const char *key, long long low, long long high, long long &out) {
        std::string digits;
        return text(word, key, digits) && whole(digits, key, low, high, out);
    }

    bool whole(const std::string &digits, const char *what, long long low, long long high, long long &out) {
        char *end = nullptr;
        errno = 0;
        out = std::strtoll(digits.c_str(), &end, 10);
        const bool is_whole = !digits.empty() && end == digits.c_str() + digits.size();  // a zero byte ends strtoll, not the word
        if (is_whole && errno == 0 && out >= low && out <= high) return true;
        return fail(std::string(what) + " from " + std::to_string(low) + " to " + std::to_string(high), quoted(digits));
    }

    Plan &plan_;
    std::string &error_;
    int line_number_ = 0;
    bool has_header_ = false;
    bool has_memory_ = false;
    bool has_pin_ = false;
};

}  // namespace

const PlannedTensor *Plan::find(const char *name) const {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : &tensors[static_cast<std::size_t>(found->second)];
}

const PlannedDevice *Plan::find_device(const std::string &name) const {
    const auto found = std::find_if(devices.begin(), devices.end(), [&](const PlannedDevice &one) { return one.name == name; });
    return found == devices.end() ? nullptr : &*found;
}

int Plan::pinned_slots(const PlannedGroup &group, int n_slots) const {
    const auto share = static_cast<int>(static_cast<long long>(n_slots) * pin.millionths / kMillion);
    const int most = std::min({share, pin.slots, n_slots - pin.spare, static_cast<int>(group.warm.size())});
    return std::max(most, 0);
}

int Plan::usable_slots(const PlannedGroup &group, int n_slots) const {
    return n_slots >= group.n_expert ? n_slots : n_slots - pinned_slots(group, n_slots);
}

bool Plan::is_recorded(int index) const {
    const PlannedGroup &group = groups[static_cast<std::size_t>(index)];
    const auto first = std::find_if(groups.begin(), groups.end(),
                                    [&](const PlannedGroup &one) { return one.layer == group.layer && one.pass == group.pass && one.slots > 0; });
    return first == groups.end() || &*first == &group;
}

bool parse_plan(const char *text, std::size_t n_bytes, Plan &plan, std::string &error) {
    if (n_bytes > kMaxPlanBytes) {
        error = "Expected a plan of at most 16 MiB, found " + std::to_string(n_bytes) + " bytes";
        return false;
    }
    return PlanReader(plan, error).read(std::string(text, n_bytes));
}

}  // namespace slotpool
