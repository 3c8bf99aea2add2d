#include "ptx/constant.h"

#include <cstring>

namespace soft::ptx {

namespace {

using Kind = Constant::Kind;

constexpr int deepest = 600; // limit of nesting, which also limits the recursion of the parser
constexpr uint64_t warp_size = 32;

struct Operator {
    const char *mark;
    int precedence;
};

constexpr Operator operators[] = {
    {"||", 1}, {"&&", 2}, {"|", 3}, {"^", 4},  {"&", 5},  {"==", 6},
    {"!=", 6}, {"<", 7},  {">", 7}, {"<=", 7}, {">=", 7}, {"<<", 8},
    {">>", 8}, {"+", 9},  {"-", 9}, {"*", 10}, {"/", 10}, {"%", 10},
};

double double_of(const Constant &value) {
    if (value.kind == Kind::Signed)
        return double(int64_t(value.bits));
    if (value.kind == Kind::Unsigned)
        return double(value.bits);
    if (value.kind == Kind::Single) {
        float single;
        uint32_t bits = uint32_t(value.bits);
        std::memcpy(&single, &bits, sizeof(single));
        return single;
    }
    double result;
    std::memcpy(&result, &value.bits, sizeof(result));
    return result;
}

Constant of_double(double value) {
    Constant result{Kind::Double, 0};
    std::memcpy(&result.bits, &value, sizeof(value));
    return result;
}

Constant of_bool(bool value) { return {Kind::Signed, value}; }

Constant compare(const std::string &mark, int order) {
    return of_bool(mark == "=="   ? order == 0
                   : mark == "!=" ? order != 0
                   : mark == "<"  ? order < 0
                   : mark == "<=" ? order <= 0
                   : mark == ">"  ? order > 0
                                  : order >= 0);
}

class Expression {
  public:
    explicit Expression(Reader &reader) : reader_(reader) {}

    Constant whole() {
        Nesting nesting(*this);
        Constant condition = binary(1);
        if (!reader_.accept("?"))
            return condition;
        Constant yes = whole();
        reader_.expect(":");
        Constant no = whole();
        return truth(condition) ? yes : no;
    }

  private:
    Constant unary() {
        Nesting nesting(*this);
        if (reader_.accept("+"))
            return number(unary());
        if (reader_.accept("-")) {
            Constant value = number(unary());
            return value.is_float() ? of_double(-double_of(value))
                                    : Constant{value.kind, 0 - value.bits};
        }
        if (reader_.accept("!"))
            return of_bool(!truth(unary()));
        if (reader_.accept("~"))
            return {Kind::Unsigned, ~integer(unary()).bits};
        return primary();
    }

    struct Nesting {
        explicit Nesting(Expression &expression) : depth(expression.depth_) {
            if (++depth > deepest)
                expression.reader_.fail("the constant expression is nested too deeply");
        }
        ~Nesting() { depth--; }
        int &depth;
    };

    Constant integer(Constant value) {
        if (value.is_float())
            reader_.fail("a constant expression needs an integer here, not a float");
        return value;
    }

    // Checks an operand of arithmetic. Floats that are written as bits (0f...) are not allowed.
    Constant number(Constant value) {
        if (value.kind == Kind::Single)
            reader_.syntax_error();
        return value;
    }

    bool truth(Constant value) { return integer(value).bits != 0; }

    Constant primary() {
        const Token now = reader_.now();
        if (now.kind == Token::Kind::Integer) {
            reader_.take();
            return {now.is_unsigned ? Kind::Unsigned : Kind::Signed, now.bits};
        }
        if (now.kind == Token::Kind::Float) {
            reader_.take();
            return {now.single ? Kind::Single : Kind::Double, now.bits};
        }
        if (now.kind == Token::Kind::Word && now.text == "WARP_SZ") {
            reader_.take();
            return {Kind::Signed, warp_size};
        }
        reader_.expect("(");
        if (reader_.now().kind == Token::Kind::Dot) {
            bool is_signed = reader_.at_dot("s64");
            if (!is_signed && !reader_.at_dot("u64"))
                reader_.syntax_error();
            reader_.take();
            reader_.expect(")");
            return {is_signed ? Kind::Signed : Kind::Unsigned, integer(unary()).bits};
        }
        Constant value = whole();
        reader_.expect(")");
        return value;
    }

    const Operator *operator_here() const {
        if (reader_.now().kind == Token::Kind::Mark)
            for (const Operator &known : operators)
                if (reader_.at(known.mark))
                    return &known;
        return nullptr;
    }

    Constant binary(int least) {
        Nesting nesting(*this);
        Constant left = unary();
        for (;;) {
            const Operator *found = operator_here();
            if (!found || found->precedence < least)
                return left;
            reader_.take();
            left = combine(found->mark, left, binary(found->precedence + 1));
        }
    }

    Constant combine(const std::string &mark, Constant left, Constant right) {
        left = number(left);
        right = number(right);
        if (mark == "&&")
            return of_bool(truth(left) && truth(right));
        if (mark == "||")
            return of_bool(truth(left) || truth(right));
        bool comparison =
            mark.find_first_of("=<>") != std::string::npos && mark != "<<" && mark != ">>";
        if (left.is_float() || right.is_float())
            return of_floats(mark, double_of(left), double_of(right), comparison);
        bool is_signed = left.kind == Kind::Signed && right.kind == Kind::Signed;
        int64_t a = int64_t(left.bits), b = int64_t(right.bits);
        if (comparison)
            return compare(mark, is_signed ? (a > b) - (a < b)
                                           : (left.bits > right.bits) - (left.bits < right.bits));
        if (mark == "<<" || mark == ">>")
            return shifted(mark == "<<", left, right.bits);
        return {is_signed ? Kind::Signed : Kind::Unsigned,
                of_integers(mark[0], left.bits, right.bits, is_signed)};
    }

    Constant of_floats(const std::string &mark, double a, double b, bool comparison) {
        if (comparison && a == a && b == b)
            return compare(mark, (a > b) - (a < b));
        if (comparison)
            return of_bool(mark == "!=");
        switch (mark[0]) {
        case '+':
            return of_double(a + b);
        case '-':
            return of_double(a - b);
        case '*':
            return of_double(a * b);
        case '/':
            if (b != 0)
                return of_double(a / b);
            reader_.fail("a constant expression divides by zero");
        default:
            reader_.fail("a constant expression needs integers for '" + mark + "'");
        }
    }

    static Constant shifted(bool left, Constant value, uint64_t by) {
        bool negative = value.kind == Kind::Signed && value.bits >> 63;
        uint64_t fill = negative ? ~uint64_t{0} : 0;
        if (left)
            return {value.kind, by < 64 ? value.bits << by : 0};
        if (by >= 64)
            return {value.kind, fill};
        return {value.kind, value.bits >> by | (by ? fill << (64 - by) : 0)};
    }

    uint64_t of_integers(char mark, uint64_t a, uint64_t b, bool is_signed) {
        switch (mark) {
        case '+':
            return a + b;
        case '-':
            return a - b;
        case '*':
            return a * b;
        case '&':
            return a & b;
        case '|':
            return a | b;
        case '^':
            return a ^ b;
        default:
            break;
        }
        if (!b)
            reader_.fail("a constant expression divides by zero");
        bool divide = mark == '/';
        if (!is_signed)
            return divide ? a / b : a % b;
        if (b == ~uint64_t{0}) // special case, because lowest / -1 would overflow
            return divide ? 0 - a : 0;
        int64_t x = int64_t(a), y = int64_t(b);
        return uint64_t(divide ? x / y : x % y);
    }

    Reader &reader_;
    int depth_ = 0;
};

} // namespace

bool starts_constant(const Reader &reader) {
    Token::Kind kind = reader.now().kind;
    if (kind == Token::Kind::Integer || kind == Token::Kind::Float)
        return true;
    if (kind == Token::Kind::Word)
        return reader.now().text == "WARP_SZ";
    return reader.at("(") || reader.at("-") || reader.at("+") || reader.at("~") || reader.at("!");
}

Constant read_constant(Reader &reader) { return Expression(reader).whole(); }

uint64_t read_integer(Reader &reader) {
    Constant value = read_constant(reader);
    if (value.is_float())
        reader.fail("an integer is needed here, not a float");
    return value.bits;
}

uint64_t converted(const Constant &value, Type type) {
    if (type == Type::F64 || (type == Type::B64 && value.is_float())) {
        return of_double(double_of(value)).bits;
    }
    if (type == Type::F32 || (type == Type::B32 && value.is_float())) {
        if (value.kind == Kind::Single)
            return value.bits;
        float single = float(double_of(value));
        uint32_t bits;
        std::memcpy(&bits, &single, sizeof(bits));
        return bits;
    }
    return value.bits;
}

} // namespace soft::ptx
