#include "ca_values.hpp"

#include <stdexcept>

#include <alarm.h>
#include <epicsTime.h>

namespace beamport {
namespace {

std::string text(const char *from, size_t most) { return std::string(from, strnlen(from, most)); }

Elements copied(uint32_t type, const void *data, uint64_t count, size_t size, bool array) {
    const uint8_t *from = static_cast<const uint8_t *>(data);
    if (array) return Elements::packed(type, count, std::vector<uint8_t>(from, from + count * size));
    Elements made;
    made.type = type;
    made.count = 1;
    made.bytes = size;
    std::memcpy(&made.own, from, size);
    return made;
}

// The place of the units, which types with and without a precision have elsewhere.
const char *units_of(long type, const void *dbr) {
    switch (type) {
    case DBR_CTRL_SHORT: return static_cast<const dbr_ctrl_short *>(dbr)->units;
    case DBR_CTRL_FLOAT: return static_cast<const dbr_ctrl_float *>(dbr)->units;
    case DBR_CTRL_CHAR: return static_cast<const dbr_ctrl_char *>(dbr)->units;
    case DBR_CTRL_LONG: return static_cast<const dbr_ctrl_long *>(dbr)->units;
    case DBR_CTRL_DOUBLE: return static_cast<const dbr_ctrl_double *>(dbr)->units;
    default: return nullptr;
    }
}

} // namespace

void CaReader::connected(bool array) {
    state_ = State();
    choices_.clear();
    array_ = array;
    first_ = true;
}

uint32_t CaReader::value(const event_handler_args &of) {
    if (!dbr_type_is_TIME(of.type) || of.dbr == nullptr || of.count < 0) throw std::runtime_error("a value of no type");
    const dbr_time_string *head = static_cast<const dbr_time_string *>(of.dbr);
    const void *data = dbr_value_ptr(of.dbr, of.type);
    const uint64_t count = static_cast<uint64_t>(of.count);
    const bool array = array_ || count != 1;
    state_.form = array ? BP_ARRAY : BP_SCALAR;
    switch (of.type) {
    case DBR_TIME_STRING: {
        const dbr_string_t *strings = static_cast<const dbr_string_t *>(data);
        state_.value = Elements::strings(count, [=](uint64_t i) {
            return std::make_pair(static_cast<const char *>(strings[i]), strnlen(strings[i], sizeof(dbr_string_t)));
        });
        break;
    }
    case DBR_TIME_CHAR: state_.value = copied(BP_U8, data, count, sizeof(dbr_char_t), array); break;
    case DBR_TIME_SHORT: state_.value = copied(BP_I16, data, count, sizeof(dbr_short_t), array); break;
    case DBR_TIME_LONG: state_.value = copied(BP_I32, data, count, sizeof(dbr_long_t), array); break;
    case DBR_TIME_FLOAT: state_.value = copied(BP_F32, data, count, sizeof(dbr_float_t), array); break;
    case DBR_TIME_DOUBLE: state_.value = copied(BP_F64, data, count, sizeof(dbr_double_t), array); break;
    case DBR_TIME_ENUM:
        if (array) {
            state_.value = copied(BP_U16, data, count, sizeof(dbr_enum_t), array);
        } else {
            const dbr_enum_t index = *static_cast<const dbr_enum_t *>(data);
            state_.form = BP_ENUM;
            state_.value = Elements::scalar<int32_t>(BP_I32, index);
            state_.text = index < choices_.size() ? choices_[index] : std::string();
        }
        break;
    default: throw std::runtime_error("a value of no type");
    }
    const bool none = head->stamp.secPastEpoch == 0 && head->stamp.nsec == 0;
    state_.seconds = none ? 0 : static_cast<int64_t>(head->stamp.secPastEpoch) + POSIX_TIME_AT_EPICS_EPOCH;
    state_.nanoseconds = head->stamp.nsec < 1000000000u ? head->stamp.nsec : 999999999u;
    uint32_t changed = BP_CHANGED_VALUE | BP_CHANGED_TIME;
    if (first_ || head->severity != state_.severity || head->status != state_.status) {
        const bool known = head->status >= 0 && head->status < ALARM_NSTATUS;
        state_.severity = head->severity;
        state_.status = head->status;
        state_.change(&Texts::alarm, known ? epicsAlarmConditionStrings[head->status] : "");
        changed |= BP_CHANGED_ALARM;
    }
    if (first_) changed |= BP_CHANGED_UNITS;
    first_ = false;
    return changed;
}

bool CaReader::properties(const event_handler_args &of) {
    if (of.dbr == nullptr) return false;
    if (of.type == DBR_CTRL_ENUM) {
        const dbr_ctrl_enum *found = static_cast<const dbr_ctrl_enum *>(of.dbr);
        choices_.clear();
        for (int i = 0; i < found->no_str && i < MAX_ENUM_STATES; i++) {
            choices_.push_back(text(found->strs[i], MAX_ENUM_STRING_SIZE));
        }
        return false;
    }
    const char *units = units_of(of.type, of.dbr);
    if (units == nullptr) return false;
    return state_.change(&Texts::units, text(units, MAX_UNITS_SIZE)) && !first_;
}

} // namespace beamport
