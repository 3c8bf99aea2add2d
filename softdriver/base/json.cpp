#include "base/json.h"

#include <cstdio>

namespace soft {

std::string quoted(const std::string &text) {
    std::string json = "\"";
    for (char letter : text) {
        auto code = static_cast<unsigned char>(letter);
        if (letter == '"' || letter == '\\')
            json += {'\\', letter};
        else if (code >= ' ' && code != 127)
            json += letter;
        else {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", code);
            json += escaped;
        }
    }
    return json + '"';
}

} // namespace soft
