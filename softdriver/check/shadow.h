#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

// The accesses to memory that later accesses may race with.

namespace soft::check {

constexpr size_t word_bytes = 4, line_words = 32, line_bytes = line_words * word_bytes;
constexpr size_t most_entries = 64; // most accesses to a word that are kept
// The reads of at most this many other blocks are kept for a word.
constexpr size_t most_readers = 2;

inline unsigned first_of(uint32_t lanes) { return unsigned(__builtin_ctz(lanes)); }

// Returns a bit for each byte of a word that is between two addresses, which are in this word.
constexpr uint8_t bytes_of_word(uint64_t from, uint64_t to) {
    uint64_t begin = from % word_bytes;
    return uint8_t((1u << (begin + to - from)) - (1u << begin));
}

// An access of lanes of a warp to bytes of a word.
struct Entry {
    uint32_t block = 0, epoch = 0, lanes = 0;
    uint32_t place = 0; // the step: see place_of()
    // A write: its number. A strong read: the number of the write that it has seen, or 0. A read,
    // or a read-modify-write, has also seen the writes from number `first` on.
    uint32_t number = 0, first = 0;
    uint8_t warp = 0;
    uint8_t size = 0;  // the bytes of an element, if the access is strong
    uint8_t bytes : 4; // a bit for each byte of the word
    bool writes : 1, strong : 1, only_block : 1;
    bool sees : 1; // the access is strong, and its thread learns the value that it reads

    Entry() : bytes(0), writes(false), strong(false), only_block(false), sees(false) {}

    bool overlaps(const Entry &other) const { return bytes & other.bytes; }
    // Whether the access is an atomic whose result nobody uses, or a strong write.
    bool is_blind() const { return strong && writes && !sees; }
    // Returns whether both are strong, each in the scope of the other one, and access the same.
    bool is_morally_strong(const Entry &other) const {
        return strong && other.strong && bytes == other.bytes && size == other.size &&
               (block == other.block || !(only_block || other.only_block));
    }
    // Returns whether this access has read or updated the value that `write` stored.
    bool has_met(const Entry &write) const {
        return strong && bytes == write.bytes && size == write.size && first <= write.number &&
               write.number < number + !writes;
    }
    // If no thread learns the value, nothing can depend on which write was seen, and it may be
    // another write in the next run.
    bool has_seen(const Entry &write) const { return sees && has_met(write); }
    bool has_seen_others() const { return sees && (writes ? first < number : number); }
    // Returns whether this access has seen all writes that the other one has seen.
    bool has_seen_what(const Entry &other) const {
        return !other.has_seen_others() ||
               (strong && first <= other.first && other.number <= number);
    }
    // Returns whether every later access that is morally strong to this one is also morally strong
    // to `other`.
    bool is_as_weak_as(const Entry &other) const {
        return !strong || (other.strong && bytes == other.bytes && size == other.size &&
                           only_block >= other.only_block);
    }
    // Whether the other entry differs only in its lanes. Such entries can be merged.
    bool is_like(const Entry &other) const;
    void merge(const Entry &other) {
        lanes |= other.lanes;
        number = other.number;
        first = other.first;
    }
};

// The accesses to a word. Most words have only one, which is in the cell itself. Cells are most of
// the memory that the check takes.
class Cell {
  public:
    Cell() = default;
    Cell(const Cell &) = delete;
    Cell &operator=(const Cell &) = delete;
    ~Cell() {
        if (room_log_)
            delete[] more();
    }
    size_t size() const { return count_; }
    Entry &operator[](size_t i) { return entries()[i]; }
    const Entry &operator[](size_t i) const { return const_cast<Cell *>(this)->entries()[i]; }
    void clear() { count_ = 0; }
    void drop(size_t i) {
        (*this)[i] = (*this)[count_ - 1u];
        count_--;
        are_blind_ = false;
    }
    void add(const Entry &entry) {
        are_blind_ =
            entry.is_blind() && (!count_ || (are_blind_ && (*this)[0].is_morally_strong(entry)));
        if (count_ == 1u << room_log_)
            grow();
        (*this)[count_++] = entry;
    }
    // Whether all accesses here and `entry` are blind atomics that do not race with each other.
    bool are_blind_like(const Entry &entry) const {
        return are_blind_ && entry.is_blind() && (*this)[0].is_morally_strong(entry);
    }
    // Returns the entry that is the same but for its lanes, or null.
    Entry *find_like(const Entry &entry) {
        for (size_t i = 0; i < count_; i++)
            if ((*this)[i].is_like(entry))
                return &(*this)[i];
        return nullptr;
    }

  private:
    // Returns the list of all entries, if there is room for more than one. `place_` then has a
    // pointer to it, instead of the first entry.
    Entry *more() const {
        Entry *pointer;
        std::memcpy(&pointer, place_, sizeof pointer);
        return pointer;
    }
    Entry *entries() { return room_log_ ? more() : reinterpret_cast<Entry *>(place_); }
    void grow();

    alignas(Entry) unsigned char place_[sizeof(Entry)];
    uint8_t count_ = 0;
    uint8_t room_log_ = 0; // there is room for 2^room_log_ entries
    bool are_blind_ = false;
};
static_assert(sizeof(Cell) <= 32 && most_entries < 256);

// An access of some lanes of a warp to a line, at equal distances: the first of `lanes` accesses
// `size` bytes from `begin` on, the next one `stride` bytes further, and so on. If the stride is 0,
// all lanes access the same bytes.
struct Span {
    uint32_t block = 0, epoch = 0, lanes = 0;
    uint32_t place = 0;         // the step: see place_of()
    uint8_t begin = 0, end = 0; // the bytes of the line
    uint8_t size = 0, stride = 0;
    uint8_t warp = 0;
    bool writes = false, only_block = false;
    uint8_t strong = 0; // for a strong access, which is blind: the bytes of an item

    bool is_weak_write() const { return writes && !strong; }
    // Whether the other span differs only in its place.
    bool is_same(const Span &other) const {
        return lanes == other.lanes && epoch == other.epoch && block == other.block &&
               warp == other.warp && has_pattern(other) && writes == other.writes &&
               strong == other.strong && only_block == other.only_block;
    }
    bool overlaps(const Span &other) const { return begin < other.end && other.begin < end; }
    bool has_gaps() const { return stride > size; }
    bool covers(const Span &other) const {
        return begin <= other.begin && other.end <= end && (!has_gaps() || has_pattern(other));
    }
    // Whether both access the same bytes by the same lanes.
    bool has_pattern(const Span &other) const {
        return begin == other.begin && end == other.end && lanes == other.lanes &&
               stride == other.stride && size == other.size;
    }
    // Whether each byte is accessed by only one lane, and by the same lane as in another span of
    // the warp.
    bool has_threads(const Span &other) const {
        return has_pattern(other) && (stride || !(lanes & (lanes - 1)));
    }
    // Returns the lanes that access some of these bytes of the line.
    uint32_t lanes_at(unsigned from, unsigned to) const;
    // Calls a function for all lanes that access the same bytes, with the first of these bytes.
    template <class Each> void each(Each call) const {
        if (!stride)
            return call(lanes, begin);
        unsigned at = begin;
        for (uint32_t left = lanes; left; left &= left - 1, at += stride)
            call(left & -left, at);
    }
};

// Converts a span to the entry of a word. Its lanes and bytes are not set.
inline Entry as_entry(const Span &span) {
    Entry entry;
    entry.block = span.block;
    entry.epoch = span.epoch;
    entry.place = span.place;
    entry.warp = span.warp;
    entry.size = span.strong;
    entry.writes = span.writes;
    entry.strong = span.strong != 0;
    entry.only_block = span.only_block;
    return entry;
}

// The accesses to a line: at first some spans. When they are too many, or when there may be a race,
// the line gets a cell for each word.
class Line {
  public:
    // Forgets everything if the line is of an older generation.
    void begin(uint32_t generation) {
        if (generation_ == generation)
            return;
        generation_ = generation;
        count_ = writes_ = 0;
        spread_ = false;
    }
    // 0 unless begin() has been called. All accesses are then of one block.
    uint32_t generation() const { return generation_; }
    // Gives back the memory of the cells.
    void forget() {
        begin(0);
        cells_.reset();
    }
    bool has_cells() const { return spread_; }
    Cell &cell(size_t word) {
        if (!spread_)
            spread();
        return (*cells_)[word];
    }
    // The spans: first the writes, then the reads.
    Span *spans() { return more_ ? more_.get() : own_; }
    unsigned writes() const { return writes_; }
    unsigned size() const { return count_; }
    bool full() const { return count_ == room_; }
    void drop(unsigned i);
    // Returns false if there is no room.
    bool add(const Span &span);

  private:
    static constexpr unsigned own = 5; // as many as the sum of three neighbours needs
    static constexpr unsigned more = line_words, most = 2 * more;
    void spread();

    uint32_t generation_ = 0;
    uint8_t count_ = 0, writes_ = 0, room_ = own;
    bool spread_ = false;
    std::unique_ptr<Span[]> more_; // instead of own_
    std::unique_ptr<std::array<Cell, line_words>> cells_;
    Span own_[own];
};

// What is known of the lines of global memory, in pages that are made when one of their lines is
// first used.
template <class OfLine> class Pages {
  public:
    OfLine &operator[](uint64_t line) {
        uint64_t number = line / page_lines;
        if (number != last_[0].number) {
            std::swap(last_[0], last_[1]); // most kernels read one array and write another one
            if (number != last_[0].number)
                last_[0] = {number, &page_at(number)};
        }
        return (*last_[0].page)[line % page_lines];
    }
    // Calls `visit` for each line of all pages, used or not.
    template <class Visit> void each(Visit visit) const {
        for (const auto &[number, page] : pages_)
            for (size_t i = 0; i < page_lines; i++)
                visit(number * page_lines + i, (*page)[i]);
    }
    // Takes over the lines of `other`. Calls `merge` for lines of pages that both have.
    template <class Merge> void join(Pages &other, Merge merge) {
        for (auto &[number, page] : other.pages_) {
            std::unique_ptr<Page> &own = pages_[number];
            if (!own) {
                own = std::move(page);
                continue;
            }
            for (size_t i = 0; i < page_lines; i++)
                merge((*own)[i], (*page)[i]);
        }
        other.pages_.clear();
        other.last_ = {};
    }

  private:
    static constexpr size_t page_lines = 64;
    using Page = std::array<OfLine, page_lines>;

    struct Used {
        uint64_t number = ~uint64_t{0};
        Page *page = nullptr;
    };

    Page &page_at(uint64_t number) {
        std::unique_ptr<Page> &page = pages_[number];
        if (!page)
            page = std::make_unique<Page>();
        return *page;
    }

    std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
    std::array<Used, 2> last_; // the pages that were used last
};

using Shadow = Pages<Line>;

} // namespace soft::check
