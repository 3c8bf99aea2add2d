#include "base/range.h"

#include <algorithm>

namespace soft {
namespace {

using Signed = int64_t;

Signed floor_divide(Signed value, Signed by) {
    Signed quotient = value / by;
    return quotient * by > value ? quotient - 1 : quotient;
}

// Returns whether one of the rows overlaps the contiguous bytes from `begin` to `end`. If any row
// does, the first row that ends after `begin` does.
bool row_touches(const Range &rows, uintptr_t begin, uintptr_t end) {
    Signed ahead = Signed(begin) - Signed(rows.begin + rows.bytes);
    Signed row = std::max<Signed>(0, floor_divide(ahead, Signed(rows.pitch)) + 1);
    return row < Signed(rows.rows) && rows.begin + size_t(row) * rows.pitch < end;
}

// Returns whether two ranges of equal pitch overlap. Whether row i of `a` and row j of `b` overlap
// depends only on i - j, so the function checks the least possible difference.
bool rows_touch(const Range &a, const Range &b) {
    auto pitch = Signed(a.pitch), shift = Signed(b.begin) - Signed(a.begin);
    Signed least = floor_divide(-Signed(b.bytes) - shift, pitch) + 1;
    Signed step = std::max(least, -Signed(a.rows - 1));
    return step <= Signed(b.rows - 1) && shift + step * pitch < Signed(a.bytes);
}

} // namespace

bool Range::overlaps(const Range &other) const {
    if (begin >= other.end() || other.begin >= end())
        return false;
    if (contiguous())
        return other.contiguous() || row_touches(other, begin, end());
    if (other.contiguous())
        return row_touches(*this, other.begin, other.end());
    if (pitch == other.pitch)
        return rows_touch(*this, other);
    const Range &few = rows < other.rows ? *this : other;
    const Range &many = rows < other.rows ? other : *this;
    for (size_t row = 0; row < few.rows; row++) {
        uintptr_t start = few.begin + row * few.pitch;
        if (row_touches(many, start, start + few.bytes))
            return true;
    }
    return false;
}

bool Range::covers(const Range &other) const {
    if (contiguous())
        return begin <= other.begin && other.end() <= end();
    return begin == other.begin && pitch == other.pitch && bytes >= other.bytes &&
           rows >= other.rows;
}

} // namespace soft
