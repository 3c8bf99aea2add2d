#include "base/settings.h"

#include "base/parse.h"
#include "base/script.h"

#include <algorithm>
#include <iterator>

namespace soft {
namespace {

constexpr int max_devices = 16;
constexpr uint64_t most_threads = 64;
constexpr uint64_t most_rounding = 1024; // more than the unit of any GPU

// The texts of settings, indexed by the values of Schedule, RaceMode and FreeWaits.
constexpr const char *schedule_names[] = {"eager", "lazy", "random", "replay"};
constexpr const char *race_modes[] = {"off", "record", "print", "abort"};
constexpr const char *free_waits_names[] = {"schedule", "always", "never"};
// The names of the bits of Check.
constexpr const char *check_names[] = {"race", "init", "sync"};

// The major versions that cuDriverGetVersion can report, each with its newest minor version.
constexpr struct {
    int major, newest_minor;
} driver_versions[] = {{12, 9}, {13, 5}};

// Returns the names of checks as settings have them, such as "race+sync".
std::string checks_text(unsigned checks) {
    std::string text;
    for (size_t i = 0; i < std::size(check_names); i++)
        if (checks >> i & 1)
            text += (text.empty() ? "" : "+") + std::string(check_names[i]);
    return text.empty() ? "off" : text;
}

std::string parse_driver(const std::string &value, Settings &settings) {
    for (const auto &known : driver_versions)
        for (int minor = 0; minor <= known.newest_minor; minor++)
            if (value == std::to_string(known.major) + "." + std::to_string(minor)) {
                settings.driver = known.major * 1000 + minor * 10;
                return "";
            }
    return "driver must be a version of CUDA, 12.0 to 12.9 or 13.0 to 13.5, not '" + value + "'";
}

std::string parse_free_waits(const std::string &value, Settings &settings) {
    for (int i = 0; i < 3; i++)
        if (value == free_waits_names[i]) {
            settings.free_waits = static_cast<FreeWaits>(i);
            return "";
        }
    return "free_waits must be schedule, always or never, not '" + value + "'";
}

std::string parse_mode(const std::string &name, const std::string &value, RaceMode &mode) {
    for (int i = 0; i < 4; i++)
        if (value == race_modes[i]) {
            mode = static_cast<RaceMode>(i);
            return "";
        }
    return name + " must be off, record, print or abort, not '" + value + "'";
}

std::string parse_checks(const std::string &value, Settings &settings) {
    constexpr unsigned all = (1u << std::size(check_names)) - 1;
    unsigned checks = value == "all" ? all : 0;
    std::string rest = checks || value == "off" ? "" : value + "+";
    while (!rest.empty()) {
        size_t plus = rest.find('+');
        auto found =
            std::find(std::begin(check_names), std::end(check_names), rest.substr(0, plus));
        if (found == std::end(check_names))
            return "checks must be off, all, or some of " + checks_text(all) + ", not '" + value +
                   "'";
        checks |= 1u << (found - std::begin(check_names));
        rest.erase(0, plus + 1);
    }
    settings.checks = checks;
    return "";
}

std::string parse_choices(const std::string &value, Settings &settings) {
    Script script;
    if (!parse_script(value, script))
        return "script must be such as x or x3:2-1, not '" + value + "'";
    settings.script = value;
    return "";
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
        else if (value == "replay")
            settings.schedule = Schedule::Replay;
        else
            return "schedule must be eager, lazy, random or replay, not '" + value + "'";
    } else if (name == "script") {
        return parse_choices(value, settings);
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
    } else if (name == "driver") {
        return parse_driver(value, settings);
    } else if (name == "capability") {
        if (value != "9.0" && value != "10.0")
            return "capability must be 9.0 or 10.0, not '" + value + "'";
        settings.capability = value == "9.0" ? 90 : 100;
    } else if (name == "free_waits") {
        return parse_free_waits(value, settings);
    } else if (name == "races") {
        return parse_mode(name, value, settings.races);
    } else if (name == "hazards") {
        return parse_mode(name, value, settings.hazards);
    } else if (name == "benign") {
        if (value != "0" && value != "1")
            return "benign must be 0 or 1, not '" + value + "'";
        settings.benign = value == "1";
    } else if (name == "checks") {
        return parse_checks(value, settings);
    } else if (name == "threads") {
        bool automatic = value == "auto";
        if (!automatic && (!parse_number(value, number) || !number || number > most_threads))
            return "threads must be auto or 1 to 64, not '" + value + "'";
        settings.threads = automatic ? 0 : unsigned(number);
    } else if (name == "instructions") {
        if (!parse_number(value, settings.instructions))
            return "instructions must be a number, not '" + value + "'";
    } else if (name == "milliseconds") {
        if (!parse_number(value, settings.milliseconds))
            return "milliseconds must be a number, not '" + value + "'";
    } else if (name == "shared_rounding") {
        if (!parse_number(value, number) || !number || number > most_rounding)
            return "shared_rounding must be 1 to 1024 bytes, not '" + value + "'";
        settings.shared_rounding = number;
    } else if (name == "kernel_faults") {
        if (value != "record" && value != "print")
            return "kernel_faults must be record or print, not '" + value + "'";
        settings.print_kernel_faults = value == "print";
    } else if (name == "report") {
        if (value.empty() || value[0] != '/')
            return "report must be the absolute path of a folder, not '" + value + "'";
        settings.report = value;
    } else if (name == "explore") {
        settings.explore = value;
    } else if (name == "fault") {
        return settings.faults.add(value);
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

std::string settings_text(const Settings &settings) {
    return std::string("schedule=") + schedule_names[static_cast<int>(settings.schedule)] +
           (settings.schedule == Schedule::Replay ? ",script=" + settings.script : "") +
           ",seed=" + std::to_string(settings.seed) +
           ",driver=" + std::to_string(settings.driver / 1000) + "." +
           std::to_string(settings.driver % 1000 / 10) +
           ",capability=" + (settings.capability == 90 ? "9.0" : "10.0") +
           ",free_waits=" + free_waits_names[static_cast<int>(settings.free_waits)] +
           ",devices=" + std::to_string(settings.devices) +
           ",memory=" + std::to_string(settings.memory) +
           ",concurrent_managed=" + (settings.concurrent_managed ? "1" : "0") +
           ",races=" + race_modes[static_cast<int>(settings.races)] +
           ",checks=" + checks_text(settings.checks) +
           ",hazards=" + race_modes[static_cast<int>(settings.hazards)] +
           ",benign=" + (settings.benign ? "1" : "0") +
           ",threads=" + (settings.threads ? std::to_string(settings.threads) : "auto") +
           ",instructions=" + std::to_string(settings.instructions) +
           ",milliseconds=" + std::to_string(settings.milliseconds) +
           ",shared_rounding=" + std::to_string(settings.shared_rounding) +
           ",kernel_faults=" + (settings.print_kernel_faults ? "print" : "record");
}

} // namespace soft
