// An update of Channel Access as a State.
#ifndef BEAMPORT_EPICS_CA_VALUES_HPP
#define BEAMPORT_EPICS_CA_VALUES_HPP

#include <string>
#include <vector>

#include <cadef.h>

#include "queue.hpp"

namespace beamport {

class CaReader {
  public:
    // The channel is there.
    void connected(bool array);

    // A DBR_TIME value. Changes the state, and answers what has changed as BP_CHANGED bits.
    uint32_t value(const event_handler_args &of);
    // A DBR_CTRL value: units and choices. True where the units of values before are others now.
    bool properties(const event_handler_args &of);

    const State &state() const { return state_; }

  private:
    State state_;
    std::vector<std::string> choices_;
    bool array_ = false, first_ = true;
};

} // namespace beamport

#endif
