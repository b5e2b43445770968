#ifndef BEAMPORT_EPICS_PUT_PVA_HPP
#define BEAMPORT_EPICS_PUT_PVA_HPP

#include <functional>
#include <memory>
#include <string>

#include <pvxs/client.h>

#include "beamport_epics.h"

namespace beamport {

// Writes the value and waits for the answer; throws with the reason. `options`: BP_PUT_ARRAY...
void put_pva(pvxs::client::Context &context, const char *pv, const bp_elements &value, uint32_t options,
             uint32_t timeout_ms);

// Begins to write; the value is sent if `is_open` says so then. `answered` is called once, by a thread of PVXS, with
// BP_PUT_... and the reason; never after the operation has ended or is gone.
std::shared_ptr<pvxs::client::Operation> begin_put_pva(pvxs::client::Context &context, const std::string &pv,
                                                       const bp_elements &value, bool is_array,
                                                       std::function<bool()> is_open,
                                                       std::function<void(int, const std::string &)> answered);

} // namespace beamport

#endif
