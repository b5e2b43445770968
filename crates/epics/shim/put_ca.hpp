// Writing by Channel Access. All is called with the client's context attached.
#ifndef BEAMPORT_EPICS_PUT_CA_HPP
#define BEAMPORT_EPICS_PUT_CA_HPP

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

#include <cadef.h>

#include "beamport_epics.h"

namespace beamport {

// Sends a value to a channel that is connected; `answer` is called with `number` once the record has processed, or is
// null. Throws where the PV cannot take it.
void send_put(chid channel, const bp_elements &value, bool is_array, caEventCallBackFunc *answer, void *number);

class CaWriter {
  public:
    // The channel of a PV that is written: one of its own, kept for the next value.
    chid channel(const std::string &pv);
    // Writes the value and waits for the answer; throws with the reason. `options`: BP_PUT_ARRAY...
    void put(chid to, const bp_elements &value, uint32_t options, uint32_t timeout_ms);

  private:
    using Time = std::chrono::steady_clock::time_point;

    static void on_connection(connection_handler_args of);
    static void on_answer(event_handler_args of);

    void wait_connected(chid channel, Time end);

    std::unordered_map<std::string, chid> channels_;
    std::deque<std::string> oldest_first_;
    std::mutex lock_;
    std::condition_variable news_;
    uintptr_t last_ = 0; // number of the newest write; answers to earlier ones come too late
    int answer_ = 0;     // its status
    bool answered_ = false;
};

} // namespace beamport

#endif
