#pragma once

#include "ast.h"
#include "lexer.h"

#include <string>
#include <string_view>
#include <vector>

namespace soft::ptx {

// The tokens of a text one after another, and the problems found in it so far.
class Reader {
  public:
    // Thrown by fail(): the statement cannot be read any further.
    struct Refused {};
    // Thrown when there are so many problems that more are of no use.
    struct Enough {};

    Reader(std::string_view text, std::vector<Problem> &problems);

    const Token &now() const { return now_; }
    const Token &after() const { return after_; } // the one after now()
    Token take();
    size_t taken() const { return taken_; } // how many tokens so far

    bool at(const char *mark) const;
    bool accept(const char *mark);
    void expect(const char *mark);
    bool at_dot(const char *name) const;
    bool accept_dot(const char *name);
    Token expect_kind(Token::Kind kind);
    std::string_view word() { return expect_kind(Token::Kind::Word).text; }
    std::string_view dot() { return expect_kind(Token::Kind::Dot).text; }

    // Something is wrong, but what follows can be read.
    void report(int line, std::string text);
    [[noreturn]] void fail(std::string text);
    [[noreturn]] void syntax_error();

    // To behind the statement's end, after fail(): a semicolon, or all that stands in braces.
    void skip_statement();

  private:
    std::vector<Problem> &problems_;
    Lexer lexer_;
    Token now_, after_;
    size_t taken_ = 0;
};

std::string quoted(std::string_view name);

} // namespace soft::ptx
