#ifndef BEAMPORT_EPICS_PUT_PVA_HPP
#define BEAMPORT_EPICS_PUT_PVA_HPP

#include <pvxs/client.h>

#include "beamport_epics.h"

namespace beamport {

// Writes the value and waits for the answer; throws with the reason.
void put_pva(pvxs::client::Context &context, const char *pv, const bp_elements &value, bool is_array,
             uint32_t timeout_ms);

} // namespace beamport

#endif
