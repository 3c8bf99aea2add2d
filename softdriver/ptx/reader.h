#pragma once

#include "ptx/ast.h"
#include "ptx/lexer.h"

#include <string>
#include <string_view>
#include <vector>

namespace soft::ptx {

// Reads a PTX text token by token, and collects the problems that the parser finds.
class Reader {
  public:
    // An exception that stops reading after a syntax error. Reading on would only report wrong
    // problems.
    struct Stop {};

    Reader(std::string_view text, std::vector<Problem> &problems);

    const Token &now() const { return now_; }
    const Token &after() const { return after_; } // returns the token after now()
    Token take();

    bool at(const char *mark) const;
    bool accept(const char *mark);
    void expect(const char *mark);
    bool at_dot(const char *name) const; // returns whether now() is this directive or modifier
    bool accept_dot(const char *name);
    Token expect_kind(Token::Kind kind);
    std::string_view word() { return expect_kind(Token::Kind::Word).text; }
    std::string_view dot() { return expect_kind(Token::Kind::Dot).text; }

    // Reports a problem after which reading can continue. Throws Stop if the text has too many
    // problems.
    void report(int line, std::string text);
    [[noreturn]] void fail(std::string text);
    [[noreturn]] void syntax_error();

  private:
    std::vector<Problem> &problems_;
    Lexer lexer_;
    Token now_, after_;
};

std::string quoted(std::string_view name);

} // namespace soft::ptx
