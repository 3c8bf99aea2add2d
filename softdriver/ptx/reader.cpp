#include "ptx/reader.h"

namespace soft::ptx {

namespace {
constexpr size_t most_problems = 20;
constexpr size_t longest_quote = 60;
} // namespace

std::string quoted(std::string_view name) {
    bool whole = name.size() <= longest_quote;
    std::string text(name.substr(0, longest_quote));
    for (char &c : text)
        // Messages consist of printable ASCII, but a module may contain other bytes.
        c = c < ' ' || c > '~' ? '?' : c;
    return "'" + text + (whole ? "'" : "...'");
}

Reader::Reader(std::string_view text, std::vector<Problem> &problems)
    : problems_(problems), lexer_(text), now_(lexer_.next()), after_(lexer_.next()) {}

Token Reader::take() {
    Token token = now_;
    now_ = after_;
    after_ = lexer_.next();
    return token;
}

bool Reader::at(const char *mark) const {
    return now_.kind == Token::Kind::Mark && now_.text == mark;
}

bool Reader::accept(const char *mark) {
    bool is = at(mark);
    if (is)
        take();
    return is;
}

void Reader::expect(const char *mark) {
    if (!accept(mark))
        syntax_error();
}

bool Reader::at_dot(const char *name) const {
    return now_.kind == Token::Kind::Dot && now_.text == name;
}

bool Reader::accept_dot(const char *name) {
    bool is = at_dot(name);
    if (is)
        take();
    return is;
}

Token Reader::expect_kind(Token::Kind kind) {
    if (now_.kind != kind)
        syntax_error();
    return take();
}

void Reader::report(int line, std::string text) {
    Problem problem;
    problem.line = line;
    problem.text = std::move(text);
    problems_.push_back(std::move(problem));
    if (problems_.size() >= most_problems)
        throw Stop{};
}

void Reader::fail(std::string text) {
    report(now_.line, std::move(text));
    throw Stop{};
}

void Reader::syntax_error() {
    if (now_.kind == Token::Kind::End)
        fail("syntax error at the end of the text");
    std::string dot = now_.kind == Token::Kind::Dot ? "." : "";
    fail("syntax error near " + quoted(dot + std::string(now_.text.substr(0, 100))));
}

} // namespace soft::ptx
