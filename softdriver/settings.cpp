#include "settings.h"

#include <cerrno>
#include <cstdlib>

namespace soft {
namespace {

constexpr int max_devices = 16;
constexpr uint64_t max_memory = uint64_t(1) << 40;

bool parse_number(const std::string &text, uint64_t &number, std::string *unit = nullptr) {
    if (text.empty() || text[0] < '0' || text[0] > '9')
        return false;
    char *end = nullptr;
    errno = 0;
    number = std::strtoull(text.c_str(), &end, 0);
    if (unit)
        *unit = end;
    return errno == 0 && (unit || *end == 0);
}

bool parse_size(const std::string &text, uint64_t &bytes) {
    std::string unit;
    if (!parse_number(text, bytes, &unit))
        return false;
    static const struct {
        const char *name;
        int shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    for (const auto &known : units)
        if (unit == known.name) {
            bool fits = bytes <= (max_memory >> known.shift);
            bytes <<= known.shift;
            return fits;
        }
    return false;
}

// fault=FUNCTION:NTH:STATUS, or fault=none
std::string parse_fault(const std::string &text, Settings &settings) {
    if (text == "none") {
        settings.faults.clear();
        return "";
    }
    size_t first = text.find(':');
    size_t second = first == std::string::npos ? first : text.find(':', first + 1);
    if (second == std::string::npos)
        return "fault must be FUNCTION:NTH:STATUS or none";
    std::string name = text.substr(0, first);
    Function function = find_function(name.c_str());
    if (function == Function::Count)
        return "fault names a function that is not implemented: " + name;
    uint64_t nth = 0, status = 0;
    if (!parse_number(text.substr(first + 1, second - first - 1), nth) || nth == 0)
        return "fault needs the number of the call, 1 or more";
    if (!parse_number(text.substr(second + 1), status) || status == 0 || status > 999)
        return "fault needs a CUresult from 1 to 999";
    settings.faults.push_back({function, nth, static_cast<CUresult>(status)});
    return "";
}

std::string parse_races(const std::string &value, Settings &settings) {
    static const char *const modes[] = {"off", "record", "print", "abort"};
    for (int i = 0; i < 4; i++)
        if (value == modes[i]) {
            settings.races = static_cast<RaceMode>(i);
            return "";
        }
    return "races must be off, record, print or abort, not '" + value + "'";
}

std::string parse_one(const std::string &name, const std::string &value, Settings &settings) {
    uint64_t number = 0;
    if (name == "schedule") {
        if (value == "eager")
            settings.schedule = Schedule::Eager;
        else if (value == "lazy")
            settings.schedule = Schedule::Lazy;
        else if (value == "random")
            settings.schedule = Schedule::Random;
        else
            return "schedule must be eager, lazy or random, not '" + value + "'";
    } else if (name == "seed") {
        if (!parse_number(value, settings.seed))
            return "seed must be a number, not '" + value + "'";
    } else if (name == "devices") {
        if (!parse_number(value, number) || number > max_devices)
            return "devices must be 0 to 16, not '" + value + "'";
        settings.devices = static_cast<int>(number);
    } else if (name == "memory") {
        if (!parse_size(value, number) || number == 0)
            return "memory must be a size such as 256MiB, at most 1024GiB, not '" + value + "'";
        settings.memory = number;
    } else if (name == "concurrent_managed") {
        if (value != "0" && value != "1")
            return "concurrent_managed must be 0 or 1, not '" + value + "'";
        settings.concurrent_managed = value == "1";
    } else if (name == "races") {
        return parse_races(value, settings);
    } else if (name == "fault") {
        return parse_fault(value, settings);
    } else {
        return "unknown setting '" + name + "'";
    }
    return "";
}

} // namespace

std::string apply_settings(const char *text, Settings &settings) {
    Settings changed = settings;
    std::string rest = text ? text : "";
    while (!rest.empty()) {
        size_t comma = rest.find(',');
        std::string item = rest.substr(0, comma);
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
        if (item.empty())
            continue;
        size_t equals = item.find('=');
        if (equals == std::string::npos)
            return "setting without a value: '" + item + "'";
        std::string problem = parse_one(item.substr(0, equals), item.substr(equals + 1), changed);
        if (!problem.empty())
            return problem;
    }
    settings = changed;
    return "";
}

} // namespace soft
