// A client of one protocol, as the C interface knows it.
#ifndef BEAMPORT_EPICS_CLIENT_HPP
#define BEAMPORT_EPICS_CLIENT_HPP

#include <memory>
#include <stdexcept>
#include <string>

#include "beamport_epics.h"
#include "queue.hpp"

namespace beamport {

// A write that failed for another reason than its value.
struct NotWritten : std::runtime_error {
    NotWritten(int how, const char *what) : std::runtime_error(what), how(how) {}
    const int how; // BP_PUT_...
};

} // namespace beamport

// Functions throw std::exception; the C interface makes messages of that.
struct bp_client {
    explicit bp_client(uint64_t queue_bytes) : queue(queue_bytes) {}
    virtual ~bp_client() {}

    virtual void add(uint64_t id, const char *pv, uint32_t size, uint32_t options) = 0;
    virtual void remove(uint64_t id) = 0;
    // The work that is due, with each call of bp_poll.
    virtual void tend() {}
    // Null where the id is unknown.
    virtual const beamport::Line *line(uint64_t id) const = 0;
    // How often the server of a PV has reported that it overwrote updates.
    virtual uint64_t server_squash(uint64_t) const { return 0; }
    // Both throw NotWritten where the server is away or does not answer.
    virtual void put(const char *pv, const bp_elements &value, uint32_t options, uint32_t timeout_ms) = 0;
    virtual void put_start(uint64_t id, const bp_elements &value, bool is_array, int32_t tag) = 0;

    beamport::Queue queue;
};

namespace beamport {

std::unique_ptr<bp_client> open_pva(const bp_settings &settings);
std::unique_ptr<bp_client> open_ca(const bp_settings &settings);

} // namespace beamport

#endif
