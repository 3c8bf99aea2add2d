#include "ptx/lexer.h"

#include <cstring>
#include <locale>
#include <sstream>
#include <string>

namespace soft::ptx {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool follows(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '$'; }

// Returns the value of a hexadecimal digit, or 99 for any other character.
unsigned digit_of(char c) {
    if (is_digit(c))
        return c - '0';
    char small = c | 0x20;
    return small >= 'a' && small <= 'f' ? small - 'a' + 10 : 99;
}

double decimal_value(std::string_view text) {
    std::istringstream stream{std::string(text)};
    stream.imbue(std::locale::classic()); // the program's locale may use a decimal comma
    double value = 0;
    stream >> value; // sets a number that is too large to the largest double
    return value;
}

} // namespace

Lexer::Lexer(std::string_view text) : text_(text.substr(0, text.find('\0'))) {}

char Lexer::at(size_t ahead) const {
    return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0';
}

// Skips white space and comments. Returns false if the text ends inside a comment.
bool Lexer::skip_blanks() {
    for (;;) {
        char c = at(0);
        if (c == '\n') {
            line_++;
            position_++;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
            position_++;
        } else if (c == '/' && at(1) == '/') {
            while (at(0) && at(0) != '\n')
                position_++;
        } else if (c == '/' && at(1) == '*') {
            size_t end = text_.find("*/", position_ + 2);
            if (end == std::string_view::npos)
                return false;
            for (; position_ < end + 2; position_++)
                line_ += text_[position_] == '\n';
        } else {
            return true;
        }
    }
}

Token Lexer::of(Token::Kind kind, size_t length) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = text_.substr(position_, length);
    position_ += token.text.size();
    return token;
}

Token Lexer::next() {
    if (!skip_blanks())
        return of(Token::Kind::Bad, text_.size());
    char c = at(0);
    if (!c)
        return of(Token::Kind::End, 0);
    if (is_digit(c))
        return number();
    if (c == '.') {
        bool starts = !position_ || !follows(text_[position_ - 1]);
        if (is_digit(at(1)) && starts)
            return number();
        size_t length = 1;
        while (follows(at(length)) || (at(length) == ':' && at(length + 1) == ':') ||
               (at(length) == ':' && at(length - 1) == ':'))
            length++;
        Token token = of(length > 1 ? Token::Kind::Dot : Token::Kind::Bad, length);
        if (length > 1)
            token.text.remove_prefix(1);
        return token;
    }
    if (follows(c) || (c == '%' && (is_letter(at(1)) || at(1) == '_' || at(1) == '$'))) {
        size_t length = 1;
        while (follows(at(length)))
            length++;
        return of(Token::Kind::Word, length);
    }
    if (c == '"') {
        size_t end = text_.find_first_of("\"\n", position_ + 1);
        if (end == std::string_view::npos || text_[end] == '\n')
            return of(Token::Kind::Bad, 1);
        Token token = of(Token::Kind::Text, end + 1 - position_);
        token.text = token.text.substr(1, token.text.size() - 2);
        return token;
    }
    for (const char *pair : {"<<", ">>", "<=", ">=", "==", "!=", "&&", "||"})
        if (c == pair[0] && at(1) == pair[1])
            return of(Token::Kind::Mark, 2);
    bool known = std::strchr(",;:{}[]()<>@!|+-*/%&^~?=", c);
    return of(known ? Token::Kind::Mark : Token::Kind::Bad, 1);
}

Token Lexer::number() {
    char prefix = at(0) == '0' ? char(at(1) | 0x20) : '\0';
    if ((prefix == 'f' || prefix == 'd') && digit_of(at(2)) < 16)
        return exact();
    size_t base = prefix == 'x' ? 16 : prefix == 'b' ? 2 : 10;
    size_t begin = base == 10 ? 0 : 2, length = begin;
    while (digit_of(at(length)) < base)
        length++;
    if (base == 10 && (at(length) == '.' || (at(length) | 0x20) == 'e'))
        return decimal();
    bool octal = base == 10 && at(0) == '0';
    base = octal ? 8 : base;
    uint64_t bits = 0;
    bool good = length > begin;
    for (size_t i = begin; i < length; i++) {
        uint64_t digit = digit_of(at(i));
        good = good && digit < base && bits <= (~uint64_t{0} - digit) / base;
        bits = bits * base + digit;
    }
    bool is_unsigned = at(length) == 'U';
    length += is_unsigned;
    while (follows(at(length))) { // a letter after a number, as in 12ab, is an error
        good = false;
        length++;
    }
    Token token = of(good ? Token::Kind::Integer : Token::Kind::Bad, length);
    token.bits = bits;
    token.is_unsigned = is_unsigned || bits >> 63;
    return token;
}

Token Lexer::decimal() {
    size_t length = 0;
    while (is_digit(at(length)))
        length++;
    if (at(length) == '.')
        length++;
    while (is_digit(at(length)))
        length++;
    bool good = true;
    if ((at(length) | 0x20) == 'e') {
        length++;
        if (at(length) == '+' || at(length) == '-')
            length++;
        good = is_digit(at(length));
        while (is_digit(at(length)))
            length++;
    }
    while (follows(at(length))) {
        good = false;
        length++;
    }
    Token token = of(good ? Token::Kind::Float : Token::Kind::Bad, length);
    if (good) {
        double value = decimal_value(token.text);
        std::memcpy(&token.bits, &value, sizeof(value));
    }
    return token;
}

// Reads a float or double that is written as hexadecimal bits, such as 0f3F800000 or
// 0d3FF0000000000000.
Token Lexer::exact() {
    bool single = (at(1) | 0x20) == 'f';
    size_t length = 2;
    uint64_t bits = 0;
    for (; digit_of(at(length)) < 16; length++)
        bits = bits << 4 | digit_of(at(length));
    bool good = length == (single ? 10 : 18) && !follows(at(length));
    while (follows(at(length)))
        length++;
    Token token = of(good ? Token::Kind::Float : Token::Kind::Bad, length);
    token.bits = bits;
    token.single = single;
    return token;
}

} // namespace soft::ptx
