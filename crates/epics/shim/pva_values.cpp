#include "pva_values.hpp"

#include <limits>

#include <epicsTime.h>

#include "elements.hpp"

using pvxs::shared_array;
using pvxs::TypeCode;
using pvxs::Value;

namespace beamport {
namespace {

// Structures in an attribute, one in the other.
const int MOST_DEPTH = 8;

// The type of elements of scalars and arrays, BP_NONE for structures.
uint32_t type_of(TypeCode code) {
    switch (code.scalarOf().code) {
    case TypeCode::Bool: return BP_U8;
    case TypeCode::Int8: return BP_I8;
    case TypeCode::Int16: return BP_I16;
    case TypeCode::Int32: return BP_I32;
    case TypeCode::Int64: return BP_I64;
    case TypeCode::UInt8: return BP_U8;
    case TypeCode::UInt16: return BP_U16;
    case TypeCode::UInt32: return BP_U32;
    case TypeCode::UInt64: return BP_U64;
    case TypeCode::Float32: return BP_F32;
    case TypeCode::Float64: return BP_F64;
    case TypeCode::String: return BP_STRING;
    default: return BP_NONE;
    }
}

// A peer may send any byte as a boolean.
Elements booleans(const shared_array<const void> &array) {
    std::vector<uint8_t> bytes(array.size());
    const uint8_t *from = static_cast<const uint8_t *>(array.data());
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = from[i] != 0;
    return Elements::packed(BP_U8, array.size(), std::move(bytes));
}

Elements array_of(const Value &value) {
    const auto array = value.as<shared_array<const void>>();
    const uint32_t type = type_of(value.type());
    if (type == BP_STRING) {
        const auto texts = array.castTo<const std::string>();
        return Elements::strings(texts.size(), [&](uint64_t i) {
            return std::make_pair(texts[i].data(), texts[i].size());
        });
    }
    if (value.type() == TypeCode::BoolA) return booleans(array);
    Elements made;
    made.type = type;
    made.count = array.size();
    made.bytes = array.size() * value.type().scalarOf().size();
    if (made.count != 0) made.owner = array.dataPtr();
    return made;
}

template <typename T> Elements scalar_of(uint32_t type, const Value &value) {
    return Elements::scalar<T>(type, value.as<T>());
}

template <typename T> T number(const Value &value, T otherwise = 0) {
    T found = otherwise;
    if (value) value.as(found);
    return found;
}

std::string text(const Value &value) {
    std::string found;
    if (value) value.as(found);
    return found;
}

// Nanoseconds of a peer may be anything.
void stamp(int64_t from, uint32_t part, int64_t &seconds, uint32_t &nanoseconds) {
    seconds = from;
    nanoseconds = part < 1000000000u ? part : 999999999u;
    // The time that servers of records send where it was never set.
    if (seconds == POSIX_TIME_AT_EPICS_EPOCH && nanoseconds == 0) seconds = 0;
}

int16_t narrow(int32_t number) {
    const int32_t least = std::numeric_limits<int16_t>::min(), most = std::numeric_limits<int16_t>::max();
    return static_cast<int16_t>(number < least ? least : number > most ? most : number);
}

bool is_enum(const Value &value) {
    return value && value.type() == TypeCode::Struct && value["index"].type().kind() == pvxs::Kind::Integer &&
           value["choices"].type() == TypeCode::StringA;
}

std::shared_ptr<const Extra> table_of(const Value &update) {
    auto table = std::make_shared<Extra>();
    shared_array<const std::string> labels;
    if (const Value field = update["labels"]) field.as(labels);
    const Value value = update["value"];
    size_t place = 0;
    for (const Value column : value.ichildren()) {
        Named named;
        named.source = value.nameOf(column);
        named.name = place < labels.size() ? labels[place] : named.source;
        named.values = elements_of(column);
        table->named.push_back(std::move(named));
        place += 1;
    }
    table->finish();
    return table;
}

// A table of numbers with their times; messages hold no other tables.
bool is_series(const Value &update) {
    const std::shared_ptr<const Extra> table = table_of(update);
    size_t found = 0;
    for (const Named &column : table->named) {
        const bool wanted = column.name == "value" || column.name == "timestamp";
        if (wanted && size_of(column.values.type) != 0) found += 1;
    }
    return found == 2;
}

uint32_t form_of(const Value &update) {
    const Value value = update["value"];
    if (!value) return BP_OTHER;
    if (update.idStartsWith("epics:nt/NTNDArray:") && value.type() == TypeCode::Union) return BP_IMAGE;
    if (update.idStartsWith("epics:nt/NTTable:") && value.type() == TypeCode::Struct) {
        return is_series(update) ? BP_TABLE : BP_OTHER;
    }
    if (is_enum(value)) return BP_ENUM;
    if (type_of(value.type()) == BP_NONE) return BP_OTHER;
    return value.type().isarray() ? BP_ARRAY : BP_SCALAR;
}

// The structures in an array of structures, without those that are null.
std::vector<Value> structures(const Value &field) {
    std::vector<Value> found;
    shared_array<const Value> array;
    if (!field || field.type() != TypeCode::StructA || !field.as(array)) return found;
    for (const Value &one : array) {
        if (one) found.push_back(one);
    }
    return found;
}

// Adds an attribute of an image. One that is a structure becomes several: its field `value` under the name of the
// attribute, the others as `NAME.FIELD`. Parts without a place in a message are counted.
void add_attribute(Extra &image, const Named &of, const Value &value, int depth) {
    if (value && (value.type() == TypeCode::Any || value.type() == TypeCode::Union)) {
        Value inner;
        value.as(inner);
        return add_attribute(image, of, inner, depth);
    }
    Named named = of;
    if (!value) {
        image.named.push_back(std::move(named));
        return;
    }
    const uint32_t type = type_of(value.type());
    const bool is_list = value.type().isarray();
    if (type != BP_NONE && !(is_list && type == BP_STRING)) {
        named.values = elements_of(value);
        image.named.push_back(std::move(named));
        return;
    }
    if (is_list || value.type() != TypeCode::Struct || depth >= MOST_DEPTH) {
        image.dropped += 1;
        return;
    }
    if (is_enum(value)) {
        const int32_t index = number<int32_t>(value["index"], -1);
        shared_array<const std::string> choices;
        value["choices"].as(choices);
        named.values = Elements::scalar<int32_t>(BP_I32, index);
        image.named.push_back(named);
        if (index < 0 || static_cast<size_t>(index) >= choices.size()) return;
        const std::string &choice = choices[static_cast<size_t>(index)];
        named.name += ".choice";
        named.values = Elements::string(choice.data(), choice.size());
        image.named.push_back(std::move(named));
        return;
    }
    for (const Value field : value.ichildren()) {
        const std::string &name = value.nameOf(field);
        named.name = name == "value" ? of.name : of.name + "." + name;
        add_attribute(image, named, field, depth + 1);
    }
}

// Whether NTNDArray has this field. Servers add others, which are attributes by another way.
bool is_standard(const std::string &name) {
    static const char *const fields[] = {"value",         "codec",     "compressedSize", "uncompressedSize",
                                         "dimension",     "uniqueId",  "dataTimeStamp",  "attribute",
                                         "descriptor",    "alarm",     "timeStamp",      "display"};
    for (const char *field : fields) {
        if (name == field) return true;
    }
    return false;
}

void read_attribute(Extra &image, const Value &attribute) {
    Named named;
    named.name = text(attribute["name"]);
    named.description = text(attribute["descriptor"]);
    named.source = text(attribute["source"]);
    add_attribute(image, named, attribute["value"], 0);
}

// The element type of what a codec made smaller: its parameters hold a ScalarType of pvData.
uint32_t codec_type(const Value &codec) {
    Value parameters;
    const Value field = codec["parameters"];
    if (!field || !field.as(parameters) || !parameters) return BP_U8;
    const int32_t found = number<int32_t>(parameters, 0);
    return found >= BP_I8 && found <= BP_F64 ? static_cast<uint32_t>(found) : static_cast<uint32_t>(BP_U8);
}

} // namespace

Elements elements_of(const Value &value) {
    const uint32_t type = type_of(value.type());
    if (value.type().isarray()) return type == BP_NONE ? Elements() : array_of(value);
    switch (value.type().code) {
    case TypeCode::Bool: return Elements::scalar<uint8_t>(BP_U8, value.as<bool>() ? 1 : 0);
    case TypeCode::Int8: return scalar_of<int8_t>(type, value);
    case TypeCode::Int16: return scalar_of<int16_t>(type, value);
    case TypeCode::Int32: return scalar_of<int32_t>(type, value);
    case TypeCode::Int64: return scalar_of<int64_t>(type, value);
    case TypeCode::UInt8: return scalar_of<uint8_t>(type, value);
    case TypeCode::UInt16: return scalar_of<uint16_t>(type, value);
    case TypeCode::UInt32: return scalar_of<uint32_t>(type, value);
    case TypeCode::UInt64: return scalar_of<uint64_t>(type, value);
    case TypeCode::Float32: return scalar_of<float>(type, value);
    case TypeCode::Float64: return scalar_of<double>(type, value);
    case TypeCode::String: {
        const std::string text = value.as<std::string>();
        return Elements::string(text.data(), text.size());
    }
    default: return Elements();
    }
}

void PvaReader::learn(const Value &update) {
    state_ = State();
    choices_ = shared_array<const std::string>();
    for (Roles *roles : {&top_, &alarm_, &time_}) roles->clear();
    if (update.type() != TypeCode::Struct) {
        state_.form = BP_OTHER;
        return;
    }
    state_.form = form_of(update);
    state_.change(&Texts::type_id, update.id());
    const auto roles_of = [](const Value &structure, std::initializer_list<std::pair<const char *, Role>> names) {
        Roles roles;
        for (const Value field : structure.ichildren()) {
            roles.push_back(Role::OTHER);
            for (const auto &known : names) {
                if (structure.nameOf(field) == known.first) roles.back() = known.second;
            }
        }
        return roles;
    };
    top_ = roles_of(update, {{"value", Role::VALUE}});
    size_t place = 0;
    for (const Value field : update.ichildren()) {
        Role &role = top_[place++];
        if (field.type() != TypeCode::Struct) continue;
        const std::string &name = update.nameOf(field);
        if (name == "alarm") {
            role = Role::ALARM;
            alarm_ = roles_of(field, {{"severity", Role::SEVERITY},
                                      {"status", Role::STATUS},
                                      {"message", Role::MESSAGE}});
        } else if (name == "timeStamp") {
            role = Role::TIME;
            time_ = roles_of(field, {{"secondsPastEpoch", Role::SECONDS},
                                     {"nanoseconds", Role::NANOSECONDS},
                                     {"userTag", Role::TAG}});
        } else if (name == "display") {
            role = Role::DISPLAY;
        }
    }
}

uint32_t PvaReader::read(const Value &update) {
    const bool first = first_;
    if (first) learn(update);
    uint32_t changed = 0;
    bool any = false;
    auto role = top_.begin();
    for (const Value field : update.ichildren()) {
        const Role what = role != top_.end() ? *role++ : Role::OTHER;
        // Of these nothing is kept.
        if (what == Role::OTHER && state_.form < BP_TABLE) continue;
        if (!first && !field.isMarked(true, true)) continue;
        any = true;
        if (what == Role::VALUE) {
            changed |= BP_CHANGED_VALUE;
            if (state_.form == BP_ENUM) {
                read_enum(field);
            } else if (state_.form <= BP_ARRAY) {
                state_.value = elements_of(field);
            }
        } else if (what == Role::ALARM) {
            if (read_alarm(field)) changed |= BP_CHANGED_ALARM;
        } else if (what == Role::TIME) {
            changed |= BP_CHANGED_TIME;
            read_time(field);
        } else if (what == Role::DISPLAY) {
            if (state_.change(&Texts::units, text(field["units"]))) changed |= BP_CHANGED_UNITS;
        }
    }
    if (state_.form >= BP_TABLE && (any || first)) {
        changed |= BP_CHANGED_VALUE;
        if (state_.form == BP_TABLE) {
            state_.extra = table_of(update);
        } else if (state_.form == BP_IMAGE) {
            read_image(update);
        } else {
            state_.value = Elements::packed(BP_U8, 0, encoded(update));
            state_.value.count = state_.value.bytes;
        }
    }
    first_ = false;
    if (first) return BP_CHANGED_VALUE | BP_CHANGED_ALARM | BP_CHANGED_TIME | BP_CHANGED_UNITS;
    return changed;
}

bool PvaReader::read_alarm(const Value &alarm) {
    const int16_t severity = state_.severity, status = state_.status;
    bool changed = false;
    auto role = alarm_.begin();
    for (const Value field : alarm.ichildren()) {
        const Role what = role != alarm_.end() ? *role++ : Role::OTHER;
        if (what == Role::SEVERITY) {
            state_.severity = narrow(number<int32_t>(field));
        } else if (what == Role::STATUS) {
            state_.status = narrow(number<int32_t>(field));
        } else if (what == Role::MESSAGE) {
            changed |= state_.change(&Texts::alarm, text(field));
        }
    }
    return changed || severity != state_.severity || status != state_.status;
}

void PvaReader::read_time(const Value &time) {
    int64_t seconds = 0;
    uint32_t nanoseconds = 0;
    auto role = time_.begin();
    for (const Value field : time.ichildren()) {
        const Role what = role != time_.end() ? *role++ : Role::OTHER;
        if (what == Role::SECONDS) {
            seconds = number<int64_t>(field);
        } else if (what == Role::NANOSECONDS) {
            nanoseconds = number<uint32_t>(field);
        } else if (what == Role::TAG) {
            state_.user_tag = number<int32_t>(field);
        }
    }
    stamp(seconds, nanoseconds, state_.seconds, state_.nanoseconds);
}

void PvaReader::read_enum(const Value &value) {
    const Value choices = value["choices"];
    if (choices.isMarked() || choices_.empty()) choices.as(choices_);
    const int32_t index = number<int32_t>(value["index"], -1);
    state_.value = Elements::scalar<int32_t>(BP_I32, index);
    const bool known = index >= 0 && static_cast<size_t>(index) < choices_.size();
    state_.text = known ? choices_[static_cast<size_t>(index)] : std::string();
}

void PvaReader::read_image(const Value &update) {
    Value pixels;
    update["value"].as(pixels);
    state_.value = pixels && pixels.type().isarray() ? elements_of(pixels) : Elements();
    auto image = std::make_shared<Extra>();
    for (const Value &one : structures(update["dimension"])) {
        const int64_t size = number<int64_t>(one["size"]);
        image->dims.push_back(size > 0 ? static_cast<uint64_t>(size) : 0);
    }
    for (const Value &one : structures(update["attribute"])) read_attribute(*image, one);
    for (const Value field : update.ichildren()) {
        Named named;
        named.name = update.nameOf(field);
        if (!is_standard(named.name)) add_attribute(*image, named, field, 0);
    }
    if (const Value id = update["uniqueId"]) image->has_unique_id = id.as(image->unique_id);
    if (const Value time = update["dataTimeStamp"]) {
        stamp(number<int64_t>(time["secondsPastEpoch"]), number<uint32_t>(time["nanoseconds"]), image->data_seconds,
              image->data_nanoseconds);
    }
    if (const Value codec = update["codec"]) {
        image->codec = text(codec["name"]);
        image->codec_type = codec_type(codec);
    }
    const int64_t size = number<int64_t>(update["uncompressedSize"]);
    image->uncompressed = size > 0 ? static_cast<uint64_t>(size) : 0;
    image->finish();
    state_.extra = image;
}

} // namespace beamport
