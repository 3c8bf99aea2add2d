#include "base/undefined.h"

#include <algorithm>
#include <vector>

namespace soft {

// The part of a range of bytes that is in one page.
struct UndefinedMemory::Part {
    uintptr_t page;
    size_t offset, bytes;

    static Part first(uintptr_t begin, size_t bytes) {
        size_t offset = begin % page_bytes;
        return {begin / page_bytes, offset, std::min(bytes, page_bytes - offset)};
    }
    bool is_whole() const { return bytes == page_bytes; }
};

void UndefinedMemory::turn(bool on) {
    std::lock_guard<std::mutex> lock(mutex_);
    on_ = on;
    if (on)
        return;
    tracked_.clear();
    whole_.clear();
    pages_.clear();
}

void UndefinedMemory::track(uintptr_t begin, size_t bytes) {
    if (!on_ || !bytes)
        return;
    std::lock_guard<std::mutex> lock(mutex_);
    tracked_[begin] = begin + bytes;
    undefine(begin, bytes);
}

void UndefinedMemory::untrack(uintptr_t begin, size_t bytes) {
    define(begin, bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    tracked_.erase(tracked_.lower_bound(begin), tracked_.lower_bound(begin + bytes));
}

bool UndefinedMemory::is_tracked(uintptr_t address) const {
    auto next = tracked_.upper_bound(address);
    return next != tracked_.begin() && std::prev(next)->second > address;
}

// Returns the first range in whole_ that ends behind an address.
std::map<uintptr_t, uintptr_t>::const_iterator UndefinedMemory::whole_behind(uintptr_t at) const {
    auto next = whole_.upper_bound(at);
    bool inside = next != whole_.begin() && std::prev(next)->second > at;
    return inside ? std::prev(next) : next;
}

// Removes bytes from whole_.
void UndefinedMemory::cut(uintptr_t begin, uintptr_t end) {
    auto next = whole_behind(begin);
    while (next != whole_.end() && next->first < end) {
        auto [from, to] = *next;
        next = whole_.erase(next);
        if (from < begin)
            whole_[from] = begin;
        if (to > end)
            whole_[end] = to;
    }
}

void UndefinedMemory::undefine(uintptr_t begin, size_t bytes) {
    changed_++;
    for (uintptr_t at = begin, end = begin + bytes; at < end;) {
        Part part = Part::first(at, end - at);
        if (part.is_whole() && !pages_.empty())
            pages_.erase(part.page);
        auto found = pages_.find(part.page);
        if (found != pages_.end()) {
            std::vector<uint8_t> masks(part.bytes, 0xff);
            set(at, part.bytes, masks.data(), 0);
            at += part.bytes;
            continue;
        }
        // All following whole pages without parts are one range.
        uintptr_t to = at + part.bytes;
        while (to + page_bytes <= end && !pages_.count(to / page_bytes))
            to += page_bytes;
        cut(at, to);
        whole_[at] = to;
        at = to;
    }
}

void UndefinedMemory::define(uintptr_t begin, size_t bytes) {
    if (!on_ || !bytes)
        return;
    std::lock_guard<std::mutex> lock(mutex_);
    cut(begin, begin + bytes);
    if (pages_.empty())
        return;
    static const std::array<uint8_t, page_bytes> zeros{};
    for (uintptr_t at = begin, end = begin + bytes; at < end;) {
        Part part = Part::first(at, end - at);
        if (part.is_whole())
            pages_.erase(part.page);
        else if (pages_.count(part.page))
            set(at, part.bytes, zeros.data(), 0);
        at += part.bytes;
    }
}

const UndefinedMemory::Page *UndefinedMemory::find_page(uintptr_t number) const {
    auto found = pages_.find(number);
    return found == pages_.end() ? nullptr : found->second.get();
}

// Returns a page, and creates it from whole_ if it does not exist.
UndefinedMemory::Page &UndefinedMemory::page_at(uintptr_t number) {
    std::unique_ptr<Page> &page = pages_[number];
    if (page)
        return *page;
    page = std::make_unique<Page>();
    uintptr_t begin = number * page_bytes, end = begin + page_bytes;
    auto next = whole_behind(begin);
    for (; next != whole_.end() && next->first < end; ++next) {
        size_t from = std::max(next->first, begin) - begin,
               to = std::min(next->second, end) - begin;
        std::fill(page->masks.begin() + from, page->masks.begin() + to, 0xff);
        page->undefined += to - from;
    }
    cut(begin, end);
    return *page;
}

bool UndefinedMemory::is_clean(uintptr_t begin, size_t bytes) const {
    std::lock_guard<std::mutex> lock(mutex_);
    uintptr_t first = begin / page_bytes, end = (begin + bytes - 1) / page_bytes + 1;
    for (uintptr_t page = first; page < end; page++)
        if (pages_.count(page))
            return false;
    auto next = whole_.lower_bound(first * page_bytes);
    if (next != whole_.begin() && std::prev(next)->second > first * page_bytes)
        return false;
    return next == whole_.end() || next->first >= end * page_bytes;
}

bool UndefinedMemory::get(uintptr_t begin, size_t bytes, uint8_t *masks, uint32_t &origin) const {
    bool any = false;
    for (size_t done = 0; done < bytes;) {
        Part part = Part::first(begin + done, bytes - done);
        if (const Page *page = find_page(part.page)) {
            for (size_t i = 0; i < part.bytes; i++) {
                uint8_t mask = masks[done + i] = page->masks[part.offset + i];
                if (mask && !any)
                    origin = page->origins[(part.offset + i) / word_bytes];
                any = any || mask;
            }
        } else {
            uintptr_t at = begin + done, end = at + part.bytes;
            std::fill_n(masks + done, part.bytes, 0);
            auto next = whole_behind(at);
            for (; next != whole_.end() && next->first < end; ++next) {
                uintptr_t from = std::max(next->first, at), to = std::min(next->second, end);
                std::fill_n(masks + (from - begin), to - from, 0xff);
                origin = any ? origin : 0;
                any = true;
            }
        }
        done += part.bytes;
    }
    return any;
}

void UndefinedMemory::set(uintptr_t begin, size_t bytes, const uint8_t *masks, uint32_t origin) {
    for (size_t done = 0; done < bytes;) {
        Part part = Part::first(begin + done, bytes - done);
        Page &page = page_at(part.page);
        for (size_t i = 0; i < part.bytes; i++) {
            uint8_t &mask = page.masks[part.offset + i];
            page.undefined += size_t(masks[done + i] != 0) - size_t(mask != 0);
            mask = masks[done + i];
            if (mask)
                page.origins[(part.offset + i) / word_bytes] = origin;
        }
        if (!page.undefined)
            pages_.erase(part.page);
        done += part.bytes;
    }
}

bool UndefinedMemory::read(uintptr_t begin, size_t bytes, uint8_t *masks, uint32_t &origin) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return get(begin, bytes, masks, origin);
}

void UndefinedMemory::write(uintptr_t begin, size_t bytes, const uint8_t *masks, uint32_t origin) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!is_tracked(begin))
        return;
    changed_++;
    set(begin, bytes, masks, origin);
}

bool UndefinedMemory::is_whole(uintptr_t begin, uintptr_t end) const {
    auto next = whole_.upper_bound(begin);
    return next != whole_.begin() && std::prev(next)->second >= end;
}

// Copies at most `most_copied` bytes. Words keep their origins.
void UndefinedMemory::copy_some(uintptr_t target, uintptr_t source, size_t bytes) {
    uint8_t masks[most_copied];
    uint32_t origins[most_copied], origin = 0;
    auto words = [&](auto each) {
        for (size_t done = 0, step; done < bytes; done += step) {
            step = std::min(bytes - done, word_bytes - (source + done) % word_bytes);
            each(done, step);
        }
    };
    words([&](size_t at, size_t step) {
        origins[at] = get(source + at, step, masks + at, origin) ? origin : 0;
    });
    words([&](size_t at, size_t step) { set(target + at, step, masks + at, origins[at]); });
}

void UndefinedMemory::copy(uintptr_t target, uintptr_t source, size_t bytes) {
    if (!on_ || !bytes)
        return;
    if (is_clean(source, bytes))
        return define(target, bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    if (!is_tracked(target))
        return;
    if (is_whole(source, source + bytes))
        return undefine(target, bytes);
    changed_++;
    // If the two overlap, no byte may be overwritten before it is read.
    bool backwards = target > source;
    for (size_t done = 0, step; done < bytes; done += step) {
        step = std::min(bytes - done, most_copied);
        size_t at = backwards ? bytes - done - step : done;
        copy_some(target + at, source + at, step);
    }
}

bool UndefinedMemory::find(uintptr_t &begin, uintptr_t &end, uint32_t &origin) const {
    std::lock_guard<std::mutex> lock(mutex_);
    std::array<uint8_t, page_bytes> masks;
    uintptr_t first = end, last = end;
    for (uintptr_t at = begin; at < end && last == end;) {
        Part part = Part::first(at, end - at);
        uint32_t other = 0;
        if (!get(at, part.bytes, masks.data(), other))
            std::fill_n(masks.begin(), part.bytes, 0);
        for (size_t i = 0; i < part.bytes && last == end; i++) {
            if (masks[i] && first == end) {
                first = at + i;
                origin = other;
            } else if (!masks[i] && first != end)
                last = at + i;
        }
        at += part.bytes;
        if (first == end && pages_.empty()) { // skip to the next bytes that can be undefined
            auto next = whole_behind(at);
            at = next == whole_.end() ? end : std::max(at, next->first);
        }
    }
    if (first == end)
        return false;
    begin = first;
    end = last;
    return true;
}

UndefinedMemory &undefined_memory() {
    static auto &memory = *new UndefinedMemory; // never destroyed: work may still run
    return memory;
}

} // namespace soft
