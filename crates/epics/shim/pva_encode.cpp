// The encoding of pvAccess for types and values, little endian: https://docs.epics-controls.org, "Protocol Encoding".
// PVXS has it for its own messages alone.
#include <cstring>
#include <stdexcept>

#include "pva_values.hpp"

using pvxs::Kind;
using pvxs::shared_array;
using pvxs::TypeCode;
using pvxs::Value;

namespace beamport {
namespace {

// Where a type or a value is missing.
const uint8_t NOTHING = 0xff;

class Encoder {
  public:
    std::vector<uint8_t> bytes;

    void type(const Value &of) {
        if (!of) return raw(NOTHING);
        const TypeCode code = of.type();
        raw(code.code);
        switch (code.code) {
        case TypeCode::Struct:
        case TypeCode::Union:
            members(of);
            break;
        case TypeCode::StructA:
        case TypeCode::UnionA: {
            Value array = of;
            type(array.allocMember());
            break;
        }
        default:
            break;
        }
    }

    void value(const Value &of) {
        const TypeCode code = of.type();
        if (code.kind() != Kind::Compound) return code.isarray() ? array(of) : scalar(of);
        switch (code.code) {
        case TypeCode::Struct:
            for (const Value field : of.ichildren()) value(field);
            break;
        case TypeCode::Union:
            chosen(of);
            break;
        case TypeCode::Any:
            any(of);
            break;
        default:
            structures(of);
        }
    }

  private:
    void raw(uint8_t byte) { bytes.push_back(byte); }

    void raw(const void *from, size_t size) {
        const uint8_t *first = static_cast<const uint8_t *>(from);
        bytes.insert(bytes.end(), first, first + size);
    }

    void size(size_t count) {
        if (count < 254) return raw(static_cast<uint8_t>(count));
        if (count > 0x7ffffffe) throw std::length_error("a part of the value is larger than pvAccess can say");
        const uint32_t large = static_cast<uint32_t>(count);
        raw(254);
        raw(&large, sizeof(large));
    }

    void text(const std::string &of) {
        size(of.size());
        raw(of.data(), of.size());
    }

    void members(const Value &of) {
        text(of.id());
        size(of.nmembers());
        for (const Value field : of.ichildren()) {
            text(of.nameOf(field));
            type(field);
        }
    }

    // Elements have the size and order that they have in memory.
    void scalar(const Value &of) {
        if (of.type() == TypeCode::String) return text(of.as<std::string>());
        const Elements one = elements_of(of);
        raw(&one.own, one.bytes);
    }

    void array(const Value &of) {
        if (of.type() == TypeCode::StringA) {
            const auto texts = of.as<shared_array<const std::string>>();
            size(texts.size());
            for (const std::string &one : texts) text(one);
            return;
        }
        const Elements all = elements_of(of);
        size(all.count);
        raw(all.given().data, all.bytes);
    }

    void chosen(const Value &of) {
        Value choice;
        of.as(choice);
        size_t place = 0;
        if (choice) {
            const std::string &name = of.nameOf(choice);
            for (const Value member : of.ichildren()) {
                if (of.nameOf(member) == name) {
                    size(place);
                    return value(choice);
                }
                place += 1;
            }
        }
        raw(NOTHING);
    }

    void any(const Value &of) {
        Value inside;
        of.as(inside);
        type(inside);
        if (inside) value(inside);
    }

    // Each may be missing.
    void structures(const Value &of) {
        const auto all = of.as<shared_array<const Value>>();
        size(all.size());
        for (const Value &one : all) {
            raw(one ? 1 : 0);
            if (!one) continue;
            if (of.type() == TypeCode::AnyA && one.type() != TypeCode::Any) {
                type(one);
                value(one);
            } else {
                value(one);
            }
        }
    }
};

} // namespace

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wheels are those of a little-endian machine");

std::vector<uint8_t> encoded(const Value &value) {
    Encoder encoder;
    encoder.type(value);
    encoder.value(value);
    return std::move(encoder.bytes);
}

} // namespace beamport
