#include "check/signals.h"

namespace soft::check {

bool Signals::sees(const Word &word, const Access &access) {
    bool in_scope = word.last.block == access.block || !(word.last.only_block || access.only_block);
    return in_scope && word.last.bytes == access.bytes;
}

Told Signals::seen_by(const Access &read) const {
    Told told;
    auto found = words_.find(read.address);
    if (found == words_.end() || !sees(found->second, read))
        return told;
    const Word &word = found->second;
    told.everyone = word.everyone;
    if (auto block = word.blocks.find(read.block); block != word.blocks.end()) {
        told.block = block->second;
        told.of = read.block;
    }
    return told;
}

void Signals::write(const Access &write, const Told &told, bool updates) {
    if (auto found = words_.find(write.address);
        updates && found != words_.end() && sees(found->second, write)) {
        found->second.last = write;
        return add(found->second, told);
    }
    overwrite(write.address, write.bytes);
    if (!told)
        return;
    Word &word = words_[write.address];
    word.last = write;
    add(word, told);
}

void Signals::add(Word &word, const Told &told) {
    if (!told)
        return;
    word.everyone.learn(told.everyone);
    if (told.block)
        word.blocks[told.of].learn(told.block);
}

void Signals::overwrite(uint64_t address, uint64_t bytes) {
    if (words_.empty())
        return;
    auto begin = words_.lower_bound(address);
    if (begin != words_.begin()) {
        auto before = std::prev(begin);
        if (before->first + before->second.last.bytes > address)
            begin = before;
    }
    words_.erase(begin, words_.lower_bound(address + bytes));
}

} // namespace soft::check
