#include "put_pva.hpp"

#include <algorithm>
#include <chrono>

#include "client.hpp"
#include "elements.hpp"

using pvxs::shared_array;
using pvxs::TypeCode;
using pvxs::Value;

namespace beamport {
namespace {

template <typename T> void set_number(Value field, const bp_elements &value) {
    field.from(numbers_of<T>(value).at(0));
}

template <typename T> void set_numbers(Value field, const bp_elements &value) {
    const std::vector<T> numbers = numbers_of<T>(value);
    shared_array<T> array(numbers.begin(), numbers.end());
    field.from(array.freeze());
}

void set_scalar(Value field, const bp_elements &value);
void set_array(Value field, const bp_elements &value);

// Reads a text as the field's type asks.
void set_text(Value field, const std::string &text) {
    const TypeCode type = field.type();
    if (type == TypeCode::String) return field.from(text);
    if (type == TypeCode::Bool && (text == "true" || text == "false")) return field.from(text == "true");
    const bool is_whole = type != TypeCode::Float32 && type != TypeCode::Float64;
    const Number number = read_number(text, is_whole);
    set_scalar(field, number.elements());
}

bool truth(double number) {
    if (number != 0 && number != 1) throw std::invalid_argument("the PV takes true or false, 0 or 1");
    return number != 0;
}

void set_scalar(Value field, const bp_elements &value) {
    if (value.type == BP_STRING) return set_text(field, strings_of(value).at(0));
    switch (field.type().code) {
    case TypeCode::Bool: return field.from(truth(numbers_of<double>(value).at(0)));
    case TypeCode::Int8: return set_number<int8_t>(field, value);
    case TypeCode::Int16: return set_number<int16_t>(field, value);
    case TypeCode::Int32: return set_number<int32_t>(field, value);
    case TypeCode::Int64: return set_number<int64_t>(field, value);
    case TypeCode::UInt8: return set_number<uint8_t>(field, value);
    case TypeCode::UInt16: return set_number<uint16_t>(field, value);
    case TypeCode::UInt32: return set_number<uint32_t>(field, value);
    case TypeCode::UInt64: return set_number<uint64_t>(field, value);
    case TypeCode::Float32: return set_number<float>(field, value);
    case TypeCode::Float64: return set_number<double>(field, value);
    default: throw std::invalid_argument("the PV takes a string, not a number");
    }
}

void set_booleans(Value field, const bp_elements &value) {
    shared_array<bool> array(value.count);
    const std::vector<double> numbers = numbers_of<double>(value);
    for (size_t i = 0; i < numbers.size(); i++) array[i] = truth(numbers[i]);
    field.from(array.freeze());
}

template <typename T> void set_characters(Value field, const std::string &text) {
    const std::vector<char> bytes = characters(text);
    shared_array<T> array(bytes.begin(), bytes.end());
    field.from(array.freeze());
}

// One text into an array: of characters all of it, as areaDetector has the names of its files; of numbers the number.
void set_array_of_text(Value field, const std::string &text) {
    switch (field.type().code) {
    case TypeCode::Int8A: return set_characters<int8_t>(field, text);
    case TypeCode::UInt8A: return set_characters<uint8_t>(field, text);
    case TypeCode::StringA: {
        shared_array<std::string> array(1, text);
        return field.from(array.freeze());
    }
    default: break;
    }
    const bool is_whole = field.type() != TypeCode::Float32A && field.type() != TypeCode::Float64A;
    const Number number = read_number(text, is_whole);
    set_array(field, number.elements());
}

void set_array(Value field, const bp_elements &value) {
    if (field.type() == TypeCode::StringA) {
        if (value.type != BP_STRING) throw std::invalid_argument("the PV takes strings, not numbers");
        const std::vector<std::string> strings = strings_of(value);
        shared_array<std::string> array(strings.begin(), strings.end());
        return field.from(array.freeze());
    }
    switch (field.type().scalarOf().code) {
    case TypeCode::Bool: return set_booleans(field, value);
    case TypeCode::Int8: return set_numbers<int8_t>(field, value);
    case TypeCode::Int16: return set_numbers<int16_t>(field, value);
    case TypeCode::Int32: return set_numbers<int32_t>(field, value);
    case TypeCode::Int64: return set_numbers<int64_t>(field, value);
    case TypeCode::UInt8: return set_numbers<uint8_t>(field, value);
    case TypeCode::UInt16: return set_numbers<uint16_t>(field, value);
    case TypeCode::UInt32: return set_numbers<uint32_t>(field, value);
    case TypeCode::UInt64: return set_numbers<uint64_t>(field, value);
    case TypeCode::Float32: return set_numbers<float>(field, value);
    case TypeCode::Float64: return set_numbers<double>(field, value);
    default: throw std::invalid_argument("arrays of structures cannot be written");
    }
}

void set_enum(Value field, const Value &now, const bp_elements &value) {
    if (value.type != BP_STRING) return set_scalar(field["index"], value);
    const std::string name = strings_of(value).at(0);
    shared_array<const std::string> choices;
    now["choices"].as(choices);
    const auto found = std::find(choices.begin(), choices.end(), name);
    if (found != choices.end()) return field["index"].from(static_cast<int32_t>(found - choices.begin()));
    // More digits than any index has.
    const bool is_index =
        !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    if (!is_index || std::stoul(name) >= choices.size()) {
        throw std::invalid_argument("the PV has no choice \"" + name + "\"");
    }
    field["index"].from(static_cast<int32_t>(std::stoul(name)));
}

// The PV's structure with the new value alone.
Value built(const Value &now, const bp_elements &value, bool is_array) {
    Value next = now.cloneEmpty();
    Value field = next["value"];
    if (!field) throw std::invalid_argument("the PV has no field `value`");
    if (field.type() == TypeCode::Struct && field["index"] && field["choices"]) {
        if (is_array) throw std::invalid_argument("the PV takes one choice, not an array");
        set_enum(field, now["value"], value);
    } else if (field.type().kind() == pvxs::Kind::Compound) {
        throw std::invalid_argument("structures cannot be written");
    } else if (field.type().isarray()) {
        if (!is_array && value.type == BP_STRING) {
            set_array_of_text(field, strings_of(value).at(0));
        } else {
            set_array(field, value);
        }
    } else {
        if (is_array) throw std::invalid_argument("the PV takes one value, not an array");
        set_scalar(field, value);
    }
    return next;
}

// Elements of an array, or bytes of a text; 0 for all else.
size_t length_of(const Value &field) {
    if (!field) return 0;
    if (field.type() == TypeCode::String) return field.as<std::string>().size();
    return field.type().isarray() ? field.as<shared_array<const void>>().size() : 0;
}

// Whether every record has room for the value: one element, or a text that each of its fields takes.
bool fits_all(const Value &field) { return length_of(field) <= (field.type() == TypeCode::String ? 39u : 1u); }

// Servers cut off texts and arrays that are too long for a record, and answer that all is well.
void check_length(pvxs::client::Context &context, const char *pv, size_t written, double patience) {
    const size_t kept = length_of(context.get(pv).field("value").exec()->wait(patience)["value"]);
    if (kept < written) {
        throw std::length_error("the server has kept " + std::to_string(kept) + " of " + std::to_string(written) +
                                " characters or elements: the PV has room for no more");
    }
}

// The server answers when the record has processed; as text, which servers of all libraries read.
void wait_for_record(pvxs::client::PutBuilder &builder) { builder.record("block", std::string("true")); }

} // namespace

void put_pva(pvxs::client::Context &context, const char *pv, const bp_elements &value, uint32_t options,
             uint32_t timeout_ms) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(timeout_ms);
    const auto left = [&] {
        const double seconds = std::chrono::duration<double>(end - Clock::now()).count();
        return seconds > 0.001 ? seconds : 0.001;
    };
    bool met = false; // the server has said what type the PV has
    size_t written = 0; // elements or bytes, where the server may cut off some
    try {
        pvxs::client::PutBuilder builder = context.put(pv);
        // Only a choice by name needs to know what is there.
        builder.fetchPresent(value.type == BP_STRING);
        if ((options & BP_PUT_NO_WAIT) == 0) wait_for_record(builder);
        builder
            .build([&](Value &&now) {
                met = true;
                Value next = built(now, value, (options & BP_PUT_ARRAY) != 0);
                written = fits_all(next["value"]) ? 0 : length_of(next["value"]);
                return next;
            })
            .exec()
            ->wait(left());
        if (written != 0 && (options & BP_PUT_NO_WAIT) == 0) check_length(context, pv, written, left());
    } catch (const pvxs::client::Timeout &) {
        if (met) throw NotWritten(BP_PUT_NO_ANSWER, "no answer in time; it is unknown whether the value was written");
        throw NotWritten(BP_PUT_NO_SERVER, "no server has this PV, or it does not answer");
    } catch (const pvxs::client::Disconnect &) {
        throw NotWritten(BP_PUT_NO_SERVER, "the connection to the server was lost");
    }
}

std::shared_ptr<pvxs::client::Operation> begin_put_pva(pvxs::client::Context &context, const std::string &pv,
                                                       const bp_elements &value, bool is_array,
                                                       std::function<bool()> is_open,
                                                       std::function<void(int, const std::string &)> answered) {
    // Of the caller until it returns; PVXS builds later.
    const char *data = static_cast<const char *>(value.data);
    auto bytes = std::make_shared<std::vector<char>>(data, data + value.bytes);
    bp_elements kept = value;
    kept.data = bytes->data();
    pvxs::client::PutBuilder builder = context.put(pv);
    wait_for_record(builder);
    return builder.fetchPresent(value.type == BP_STRING)
        .build([bytes, kept, is_array, is_open](Value &&now) {
            if (!is_open()) throw std::runtime_error("the write has ended");
            return built(now, kept, is_array);
        })
        .result([answered](pvxs::client::Result &&result) {
            try {
                result();
                answered(BP_PUT_DONE, std::string());
            } catch (const pvxs::client::Disconnect &) {
                answered(BP_PUT_NO_SERVER, "the connection to the server was lost");
            } catch (const std::exception &e) {
                answered(BP_PUT_REFUSED, e.what());
            }
        })
        .exec();
}

} // namespace beamport
