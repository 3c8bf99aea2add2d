#include "base/parse.h"

#include <cerrno>
#include <cstdlib>

namespace soft {

bool parse_number(const std::string &text, uint64_t &number, std::string *unit) {
    if (text.empty() || text[0] < '0' || text[0] > '9')
        return false;
    char *end = nullptr;
    errno = 0;
    // Base 0 would also read numbers with a leading 0 as octal, so look for 0x here.
    bool hexadecimal = text.compare(0, 2, "0x") == 0;
    number = std::strtoull(text.c_str(), &end, hexadecimal ? 16 : 10);
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
            bool fits = bytes <= (max_size >> known.shift);
            bytes <<= known.shift;
            return fits;
        }
    return false;
}

} // namespace soft
