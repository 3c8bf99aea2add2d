#pragma once

#include "fuzz_structs.h"

#include <memory>
#include <type_traits>

// A generator of random arguments for each parameter type of the driver's functions. An Argument
// chooses its value when it is constructed, owns the memory to which the value points, and after a
// successful call stores the results for later calls.

namespace fuzz {

template <class> constexpr bool not_known = false;
template <class Type, class = void> struct is_complete : std::false_type {};
template <class Type>
struct is_complete<Type, std::void_t<decltype(sizeof(Type))>> : std::true_type {};

template <class Type>
constexpr bool is_handle =
    std::is_pointer_v<Type> && std::is_class_v<std::remove_pointer_t<Type>> &&
    !is_complete<std::remove_pointer_t<Type>>::value;
template <class Type> constexpr bool is_structure = std::is_class_v<Type> || std::is_union_v<Type>;
template <class Type> constexpr bool is_number = std::is_arithmetic_v<Type> || std::is_enum_v<Type>;

template <class Type> Type any_number() {
    soft::Random &random = player->random;
    if constexpr (std::is_enum_v<Type>)
        return static_cast<Type>(random.below(30) ? random.below(random.below(4) ? 4 : 40)
                                                  : any_bits() & 0x7fffffff);
    else if constexpr (std::is_same_v<Type, size_t>)
        return player->shape.parts     ? any_part()
               : player->shape.maps    ? any_granules()
               : player->shape.counted ? any_count()
                                       : any_size();
    else if constexpr (std::is_same_v<Type, int>)
        return player->shape.counted ? static_cast<int>(any_count()) : any_int();
    else if constexpr (std::is_floating_point_v<Type>)
        return static_cast<Type>(random.below(3));
    else
        return static_cast<Type>(player->shape.counted ? any_count() : any_bits());
}

template <class Type, class = void> struct Argument {
    static_assert(not_known<Type>, "the fuzz test needs a generator for this type of argument");
};

struct Nothing {
    void harvest() {}
    void limit() {}
};

template <class Type> struct Argument<Type, std::enable_if_t<is_number<Type>>> : Nothing {
    Type value = any_number<Type>();
    void limit() {
        if constexpr (std::is_same_v<Type, size_t>)
            if (value > player->shape.limit)
                value = player->random.below(player->shape.limit + 1);
    }
};

// unsigned long long: a CUdeviceptr
template <> struct Argument<unsigned long long> : Nothing {
    unsigned long long value = player->shape.maps                ? any_mapping()
                               : player->shape.objects           ? objects.any(player->random)
                               : player->shape.touches_addresses ? touched_address(addresses)
                                                                 : looked_up_address();
};

template <class Type> struct Argument<Type, std::enable_if_t<is_handle<Type>>> : Nothing {
    Type value = any_handle<Type>();
};

// A pointer to a number that the function writes, or reads and writes.
template <class Number>
struct Argument<Number *, std::enable_if_t<is_number<Number> && !std::is_const_v<Number> &&
                                           !std::is_same_v<Number, char>>> {
    // Some functions take the four channels of a color.
    static constexpr size_t least = std::is_same_v<Number, float> ? 4 : 1;
    std::unique_ptr<Number[]> slot =
        std::make_unique<Number[]>(player->shape.counted ? array_length : least);
    Number *value = player->chance(97) ? slot.get() : nullptr;
    Argument() { slot[0] = any_number<Number>(); }
    void limit() {}
    void harvest() {
        if (player->shape.maps && value) {
            bool handle = uint64_t(*value) >> 32 == 0x5cd0;
            (handle ? backings : reservations).put(uint64_t(*value));
            return;
        }
        if (player->shape.objects && value) {
            objects.put(uint64_t(*value));
            return;
        }
        // Ask the driver whether the number is an address.
        Known known;
        if constexpr (sizeof(Number) == sizeof(CUdeviceptr))
            if (value && ask(*value, known))
                addresses.put(*value);
    }
};

// A pointer to numbers that the function reads.
template <class Number>
struct Argument<const Number *,
                std::enable_if_t<is_number<Number> && !std::is_same_v<Number, char>>> : Nothing {
    std::unique_ptr<Number[]> numbers = std::make_unique<Number[]>(array_length);
    const Number *value = player->chance(97) ? numbers.get() : nullptr;
    Argument() {
        for (size_t i = 0; i < array_length; i++)
            numbers[i] = any_number<Number>();
    }
};

// A pointer to a handle that the function writes.
template <class Handle>
struct Argument<Handle *, std::enable_if_t<std::is_pointer_v<Handle> && !std::is_const_v<Handle> &&
                                           std::is_class_v<std::remove_pointer_t<Handle>> &&
                                           !std::is_const_v<std::remove_pointer_t<Handle>>>> {
    size_t length = player->shape.counted ? array_length : 1;
    std::unique_ptr<Handle[]> slot = std::make_unique<Handle[]>(length);
    Handle *value = player->chance(97) ? slot.get() : nullptr;
    Argument() {
        for (size_t i = 0; i < length && player->shape.counted; i++)
            slot[i] = any_handle<Handle>();
    }
    void limit() {}
    void harvest() {
        if (value && *value)
            pool_of<Handle>().put(reinterpret_cast<uintptr_t>(*value));
    }
};

// A pointer to handles that the function reads.
template <class Handle>
struct Argument<const Handle *, std::enable_if_t<is_handle<Handle>>> : Nothing {
    std::unique_ptr<Handle[]> handles = std::make_unique<Handle[]>(array_length);
    const Handle *value = player->chance(97) ? handles.get() : nullptr;
    Argument() {
        for (size_t i = 0; i < array_length; i++)
            handles[i] = any_handle<Handle>();
    }
};

// A pointer to a pointer, which the function sets to constant data: texts, nodes.
template <class Pointer>
struct Argument<Pointer *, std::enable_if_t<std::is_pointer_v<Pointer> &&
                                            std::is_const_v<std::remove_pointer_t<Pointer>>>>
    : Nothing {
    std::unique_ptr<Pointer> slot = std::make_unique<Pointer>();
    Pointer *value = player->chance(97) ? slot.get() : nullptr;
};

// A pointer to a pointer, which the function sets: to page-locked memory, or to an entry point.
template <> struct Argument<void **> {
    std::unique_ptr<void *> slot = std::make_unique<void *>();
    void **value = player->chance(97) ? slot.get() : nullptr;
    void limit() {}
    void harvest() {
        Known known;
        auto address = reinterpret_cast<uintptr_t>(*slot);
        if (value && ask(address, known)) {
            player->mine.put(address);
            addresses.put(address);
        }
    }
};

template <class Void> struct Argument<Void *, std::enable_if_t<std::is_void_v<Void>>> : Nothing {
    static constexpr size_t buffer_bytes = 4096;
    std::unique_ptr<char[]> buffer;
    Void *value = choose();

    Void *choose() {
        if (player->shape.touches_pointers)
            return reinterpret_cast<void *>(touched_address(player->mine));
        if (player->shape.keeps_memory)
            return reinterpret_cast<void *>(kept_memory());
        if (!player->shape.own_buffers)
            return reinterpret_cast<void *>(looked_up_address());
        buffer = std::make_unique<char[]>(buffer_bytes);
        player->shape.limit = std::min(player->shape.limit, buffer_bytes);
        uint64_t first = any_bits();
        std::memcpy(buffer.get(), &first, sizeof(first));
        return player->chance(97) ? buffer.get() : nullptr;
    }
};

template <> struct Argument<char *> : Nothing {
    std::unique_ptr<char[]> buffer = std::make_unique<char[]>(256);
    char *value = player->chance(97) ? buffer.get() : nullptr;
};

template <> struct Argument<const char *> : Nothing {
    const char *value = player->chance(97) ? any_text() : nullptr;
};

template <> struct Argument<CUlogsCallback> : Nothing {
    CUlogsCallback value = any_listener();
};

template <> struct Argument<CUhostFn> : Nothing {
    CUhostFn value = any_host_function();
};

template <> struct Argument<CUstreamCallback> : Nothing {
    CUstreamCallback value = any_callback();
};

// Structures by value, and pointers to structures.
template <class Type> struct Argument<Type, std::enable_if_t<is_structure<Type>>> : Nothing {
    Type value{};
    Argument() { fill(value); }
};

template <class Type>
struct Argument<Type *, std::enable_if_t<is_structure<Type> && is_complete<Type>::value>>
    : Nothing {
    using Plain = std::remove_const_t<Type>;
    std::unique_ptr<Plain[]> array = std::make_unique<Plain[]>(array_length);
    Type *value = player->chance(97) ? array.get() : nullptr;
    Argument() {
        for (size_t i = 0; i < array_length; i++)
            fill(array[i]);
    }
};

// Arrays of attributes, of pointers to their values, and of the sizes of the values.
template <class Attribute> struct Attributes {
    Argument<Attribute *> kinds;
    Argument<void **> data;
    Argument<size_t *> sizes;
    Attribute chosen[array_length];
    uint64_t places[array_length][8]; // room for the largest value, a structure
    void *targets[array_length];
    size_t lengths[array_length];

    Attributes() {
        for (size_t i = 0; i < array_length; i++) {
            chosen[i] = any_number<Attribute>();
            targets[i] = places[i];
            lengths[i] = player->random.below(player->chance(50) ? 9 : sizeof(places[i]) + 1);
        }
        kinds.value = kinds.value ? chosen : nullptr;
        data.value = data.value ? targets : nullptr;
        sizes.value = sizes.value ? lengths : nullptr;
        *data.slot = nullptr;
    }
};

// Whether an argument may be an array whose elements another argument counts.
template <class Type> constexpr bool may_be_array() {
    using Element = std::remove_pointer_t<Type>;
    if constexpr (!std::is_pointer_v<Type> || std::is_same_v<Type, const char *>)
        return false;
    else if constexpr (is_number<std::remove_const_t<Element>>)
        return std::is_const_v<Element>;
    else
        return is_structure<Element> && is_complete<Element>::value;
}

// An argument of any type as a number, for printing.
template <class Type> uint64_t shown(const Type &value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, std::min(sizeof(value), sizeof(bits)));
    return bits;
}

} // namespace fuzz
