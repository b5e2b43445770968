// Reading the elements of a value that is to be written.
#ifndef BEAMPORT_EPICS_ELEMENTS_HPP
#define BEAMPORT_EPICS_ELEMENTS_HPP

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "beamport_epics.h"

namespace beamport {

// Bytes of a number of this type, 0 for others.
inline size_t size_of(uint32_t type) {
    static const uint8_t sizes[] = {0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8};
    return type < sizeof(sizes) ? sizes[type] : 0;
}

inline std::vector<std::string> strings_of(const bp_elements &value) {
    std::vector<std::string> found;
    const char *at = static_cast<const char *>(value.data);
    uint64_t left = value.bytes;
    for (uint64_t i = 0; i < value.count; i++) {
        uint32_t size;
        if (left < sizeof(size)) throw std::invalid_argument("the strings end too early");
        std::memcpy(&size, at, sizeof(size));
        if (left - sizeof(size) < size) throw std::invalid_argument("the strings end too early");
        found.emplace_back(at + sizeof(size), size);
        at += sizeof(size) + size;
        left -= sizeof(size) + size;
    }
    return found;
}

// The same number in another type, or an exception. Only a fraction is rounded, to the nearest one that the type has.
template <typename To, typename From> To converted(From from) {
    const bool is_whole = std::is_integral<From>::value;
    const long double wide = static_cast<long double>(from);
    if (std::is_floating_point<To>::value) {
        const To made = static_cast<To>(from);
        if (std::isfinite(wide) && !std::isfinite(static_cast<long double>(made))) {
            throw std::out_of_range("the value is out of the range of the PV's type");
        }
        if (is_whole && static_cast<long double>(made) != wide) {
            throw std::invalid_argument("the PV has floating-point numbers, of which none is exactly this value");
        }
        return made;
    }
    const long double least = static_cast<long double>(std::numeric_limits<To>::min());
    const long double most = static_cast<long double>(std::numeric_limits<To>::max());
    if (!(wide >= least && wide <= most)) throw std::out_of_range("the value is out of the range of the PV's type");
    if (wide != std::trunc(wide)) throw std::invalid_argument("the PV takes whole numbers, and the value is none");
    return static_cast<To>(from);
}

template <typename To, typename From> void convert(const bp_elements &value, std::vector<To> &to) {
    const char *at = static_cast<const char *>(value.data);
    for (uint64_t i = 0; i < value.count; i++, at += sizeof(From)) {
        From one;
        std::memcpy(&one, at, sizeof(one));
        to.push_back(converted<To>(one));
    }
}

// All elements as numbers of a type; throws for strings and for what is out of its range.
template <typename To> std::vector<To> numbers_of(const bp_elements &value) {
    std::vector<To> to;
    if (size_of(value.type) == 0) throw std::invalid_argument("the PV takes numbers, not strings");
    if (value.count > value.bytes / size_of(value.type)) throw std::invalid_argument("the elements end too early");
    to.reserve(value.count);
    switch (value.type) {
    case BP_I8: convert<To, int8_t>(value, to); break;
    case BP_I16: convert<To, int16_t>(value, to); break;
    case BP_I32: convert<To, int32_t>(value, to); break;
    case BP_I64: convert<To, int64_t>(value, to); break;
    case BP_U8: convert<To, uint8_t>(value, to); break;
    case BP_U16: convert<To, uint16_t>(value, to); break;
    case BP_U32: convert<To, uint32_t>(value, to); break;
    case BP_U64: convert<To, uint64_t>(value, to); break;
    case BP_F32: convert<To, float>(value, to); break;
    default: convert<To, double>(value, to); break;
    }
    return to;
}

// A number that a text says.
struct Number {
    uint32_t type;
    union {
        double real;
        int64_t whole;
        uint64_t natural;
    };
    bp_elements elements() const { return bp_elements{type, 0, 1, &natural, sizeof(natural)}; }
};

// Bytes of a text, with the NUL behind it.
inline std::vector<char> characters(const std::string &text) {
    return std::vector<char>(text.c_str(), text.c_str() + text.size() + 1);
}

// Reads all of a text; throws where it is no such number.
inline Number read_number(const std::string &text, bool is_whole) {
    Number number;
    const char *begin = text.c_str();
    char *end = nullptr;
    errno = 0;
    if (!is_whole) {
        number.type = BP_F64;
        number.real = strtod(begin, &end);
        // A number that is too small is rounded; a whole number is not.
        if (std::fabs(number.real) < 1) errno = 0;
        if (text.find_first_not_of("0123456789", text[0] == '-' ? 1 : 0) == std::string::npos) {
            char *whole_end = nullptr;
            if (static_cast<long double>(number.real) != strtold(begin, &whole_end)) {
                throw std::invalid_argument("the PV has floating-point numbers, of which none is exactly this value");
            }
        }
    } else if (text.find('-') != std::string::npos) {
        number.type = BP_I64;
        number.whole = strtoll(begin, &end, 10);
    } else {
        number.type = BP_U64;
        number.natural = strtoull(begin, &end, 10);
    }
    if (end == begin || *end != '\0') {
        throw std::invalid_argument(std::string("the PV takes a ") + (is_whole ? "whole " : "") + "number, not \"" + text +
                                    "\"");
    }
    if (errno == ERANGE) throw std::out_of_range("the value is out of the range of the PV's type");
    return number;
}

} // namespace beamport

#endif
