#include "explore/exchange.h"

#include <limits>
#include <sstream>

namespace soft::explore {
namespace {

// The texts are numbers and strings with spaces between them. A string is its length, a colon and
// its bytes; a list is its length and its items.

class Writer {
  public:
    template <class Number> void number(Number value) { text_ << uint64_t(value) << ' '; }
    void string(const std::string &value) { text_ << value.size() << ':' << value << ' '; }
    template <class List, class Write> void list(const List &items, Write write) {
        number(items.size());
        for (const auto &item : items)
            write(item);
    }
    template <class Number> void numbers(const std::vector<Number> &items) {
        list(items, [this](Number item) { number(item); });
    }
    void ranges(const std::vector<Range> &items) {
        list(items, [this](const Range &range) {
            for (size_t value : {range.begin, range.bytes, range.pitch, range.rows})
                number(value);
        });
    }
    void footprint(const Footprint &touched) {
        ranges(touched.reads);
        ranges(touched.writes);
    }
    std::string text() const { return text_.str(); }

  private:
    std::ostringstream text_;
};

class Reader {
  public:
    explicit Reader(const std::string &text) : text_(text) {}

    template <class Number> void number(Number &value) {
        uint64_t read = 0;
        ok_ &= bool(text_ >> read) && read <= std::numeric_limits<Number>::max();
        value = static_cast<Number>(read);
    }
    void string(std::string &value) {
        size_t size = 0;
        number(size);
        ok_ = ok_ && text_.get() == ':' && size <= longest;
        value.resize(ok_ ? size : 0);
        text_.read(value.data(), static_cast<std::streamsize>(value.size()));
        ok_ &= bool(text_);
    }
    template <class Item, class Read> void list(std::vector<Item> &items, Read read) {
        size_t size = 0;
        number(size);
        items.clear();
        while (ok_ && items.size() < size)
            read(items.emplace_back());
    }
    template <class Number> void numbers(std::vector<Number> &items) {
        list(items, [this](Number &item) { number(item); });
    }
    void ranges(std::vector<Range> &items) {
        list(items, [this](Range &range) {
            for (size_t *value : {&range.begin, &range.bytes, &range.pitch, &range.rows})
                number(*value);
        });
    }
    void footprint(Footprint &touched) {
        ranges(touched.reads);
        ranges(touched.writes);
    }
    bool ok() const { return ok_; }

  private:
    static constexpr size_t longest = 1 << 20;
    std::istringstream text_;
    bool ok_ = true;
};

} // namespace

std::string text_of(const Run &run) {
    Writer writer;
    writer.list(run.steps, [&](const Step &step) {
        writer.number(step.actor);
        writer.numbers(step.options);
        writer.footprint(step.touched);
        writer.number(step.waits_for_value);
        writer.numbers(step.after);
        writer.string(step.name);
        writer.string(step.what);
        writer.string(step.stream);
    });
    writer.numbers(run.choices);
    writer.number(run.fresh);
    writer.number(run.waits_less);
    writer.number(run.stopped);
    writer.list(run.limits, [&](const std::string &limit) { writer.string(limit); });
    writer.string(run.misfit);
    writer.string(run.failure);
    return writer.text();
}

bool parse_run(const std::string &text, Run &run) {
    Reader reader(text);
    reader.list(run.steps, [&](Step &step) {
        reader.number(step.actor);
        reader.numbers(step.options);
        reader.footprint(step.touched);
        reader.number(step.waits_for_value);
        reader.numbers(step.after);
        reader.string(step.name);
        reader.string(step.what);
        reader.string(step.stream);
    });
    reader.numbers(run.choices);
    reader.number(run.fresh);
    reader.number(run.waits_less);
    reader.number(run.stopped);
    std::vector<std::string> limits;
    reader.list(limits, [&](std::string &limit) { reader.string(limit); });
    run.limits = {limits.begin(), limits.end()};
    reader.string(run.misfit);
    reader.string(run.failure);
    return reader.ok() && run.fresh <= run.steps.size();
}

std::string text_of(const Search::Plan &plan) {
    Writer writer;
    writer.numbers(plan.script);
    writer.list(plan.sleepers, [&](const Sleeper &sleeper) {
        writer.number(sleeper.actor);
        writer.footprint(sleeper.next);
    });
    writer.number(plan.seed);
    return writer.text();
}

bool parse_plan(const std::string &text, Search::Plan &plan) {
    Reader reader(text);
    reader.numbers(plan.script);
    reader.list(plan.sleepers, [&](Sleeper &sleeper) {
        reader.number(sleeper.actor);
        reader.footprint(sleeper.next);
    });
    reader.number(plan.seed);
    return reader.ok();
}

} // namespace soft::explore
