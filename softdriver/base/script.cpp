#include "base/script.h"

#include "base/parse.h"

namespace soft {

std::string text_of(const Script &script) {
    std::string text = "x";
    size_t firsts = 0;
    for (uint32_t choice : script) {
        if (choice == strongest) {
            text = "s";
            continue;
        }
        if (choice == 0) {
            firsts++;
            continue;
        }
        if (text.size() > 1)
            text += '-';
        if (firsts)
            text += std::to_string(firsts) + ':';
        text += std::to_string(choice);
        firsts = 0;
    }
    return text;
}

bool parse_script(const std::string &text, Script &script) {
    constexpr uint64_t longest = 1000000;
    script.clear();
    if (text.empty() || (text[0] != 'x' && text[0] != 's') || text.back() == '-')
        return false;
    if (text[0] == 's')
        script.push_back(strongest);
    std::string rest = text.substr(1);
    while (!rest.empty()) {
        size_t dash = rest.find('-');
        std::string item = rest.substr(0, dash);
        rest = dash == std::string::npos ? "" : rest.substr(dash + 1);
        size_t colon = item.find(':');
        uint64_t firsts = 0, choice = 0;
        if (colon != std::string::npos && !parse_number(item.substr(0, colon), firsts))
            return false;
        if (!parse_number(colon == std::string::npos ? item : item.substr(colon + 1), choice))
            return false;
        if (!choice || choice > longest || script.size() + firsts > longest)
            return false;
        script.insert(script.end(), firsts, 0);
        script.push_back(static_cast<uint32_t>(choice));
    }
    return true;
}

} // namespace soft
