#pragma once

#include <cstdint>
#include <string_view>

namespace soft::ptx {

struct Token {
    enum class Kind : uint8_t {
        End,
        Word,    // a name or an opcode: "ld", "%r1", "$L__BB0_1", "_"
        Dot,     // a directive or a modifier without its dot: "global", "L2::128B"
        Integer, // the value is `bits`; `is_unsigned` if it has the suffix U
        Float,   // `bits` has the bits of a double, or of a float (0f...) if `single` is set
        Text,    // a string without its quotation marks
        Mark,    // one or two characters, such as "{" or "<<"
        Bad,     // text that is no token of PTX
    };

    Kind kind = Kind::End;
    bool is_unsigned = false;
    bool single = false;
    int line = 1;
    uint64_t bits = 0;
    std::string_view text;
};

// Splits a text into tokens, which point into this text. Skips comments. Stops at the first NUL.
class Lexer {
  public:
    explicit Lexer(std::string_view text);
    Token next();

  private:
    char at(size_t ahead) const;
    bool skip_blanks();
    Token of(Token::Kind kind, size_t length);
    Token number();
    Token decimal();
    Token exact();

    std::string_view text_;
    size_t position_ = 0;
    int line_ = 1;
};

} // namespace soft::ptx
