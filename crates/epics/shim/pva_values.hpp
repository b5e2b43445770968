// An update of pvAccess as a State.
#ifndef BEAMPORT_EPICS_PVA_VALUES_HPP
#define BEAMPORT_EPICS_PVA_VALUES_HPP

#include <vector>

#include <pvxs/data.h>

#include "queue.hpp"

namespace beamport {

// Reads the updates of one subscription. Fields that an update leaves out come from those before.
class PvaReader {
  public:
    // The next update may have another type, and has everything.
    void connected() { first_ = true; }

    // Changes `state` and answers what has changed as BP_CHANGED bits; 0 where the update is empty.
    uint32_t read(const pvxs::Value &update);

    const State &state() const { return state_; }

    // Notes how often the server has reported that it overwrote updates.
    void overruns(uint64_t count) { state_.overruns = count; }

  private:
    // What a field is, by its place: looking names up for each update would take longer than all else.
    enum class Role : uint8_t {
        OTHER,
        // Of the whole.
        VALUE,
        ALARM,
        TIME,
        DISPLAY,
        // Of the alarm.
        SEVERITY,
        STATUS,
        MESSAGE,
        // Of the time.
        SECONDS,
        NANOSECONDS,
        TAG
    };
    using Roles = std::vector<Role>;

    void learn(const pvxs::Value &update);
    bool read_alarm(const pvxs::Value &alarm);
    void read_time(const pvxs::Value &time);
    void read_enum(const pvxs::Value &value);
    void read_image(const pvxs::Value &update);

    State state_;
    Roles top_, alarm_, time_;
    pvxs::shared_array<const std::string> choices_;
    bool first_ = true;
};

// Type and value in the encoding of pvAccess, little endian.
std::vector<uint8_t> encoded(const pvxs::Value &value);

// Elements of a scalar, or of an array of scalars. BP_NONE for everything else.
Elements elements_of(const pvxs::Value &value);

} // namespace beamport

#endif
