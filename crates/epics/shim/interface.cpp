// The C interface: what is thrown inside ends here.
#include "client.hpp"

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include <epicsVersion.h>
#include <malloc.h>
#include <pvxs/version.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

void say(char *error, size_t size, const char *what) {
    if (error != nullptr && size != 0) snprintf(error, size, "%s", what);
}

// Runs `work`; 0, or 1 with the reason.
template <typename Work> int guarded(char *error, size_t size, Work work) {
    try {
        work();
        return 0;
    } catch (const std::exception &e) {
        say(error, size, e.what());
    } catch (...) {
        say(error, size, "an unknown exception");
    }
    return 1;
}

// Freed memory that the process keeps, and the largest pieces that are kept: frames of 262 kB at 1,500 Hz cost 30 page
// faults each where glibc gives every one back to the kernel, half as much time as all else.
const int KEPT_BYTES = 32 << 20;

void keep_freed_memory() {
    static const bool once = [] {
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES);
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
        return true;
    }();
    (void)once;
}

} // namespace

EXPORT uint32_t bp_abi(void) { return BP_ABI; }

EXPORT const char *bp_version(void) { return BEAMPORT_EPICS_VERSION; }

EXPORT bp_client *bp_open(const bp_settings *settings, char *error, size_t size) {
    bp_client *client = nullptr;
    guarded(error, size, [&] {
        keep_freed_memory();
        if (!pvxs::version_abi_check()) throw std::runtime_error("the library of PVXS is not the one compiled for");
        switch (settings->protocol) {
        case BP_PVA:
            client = beamport::open_pva(*settings).release();
            break;
        case BP_CA:
            client = beamport::open_ca(*settings).release();
            break;
        default:
            throw std::invalid_argument("the protocol is neither PVA nor CA");
        }
    });
    return client;
}

EXPORT void bp_close(bp_client *client) {
    guarded(nullptr, 0, [&] { delete client; });
}

EXPORT int bp_descriptor(const bp_client *client) { return client->queue.descriptor(); }

EXPORT int bp_add(bp_client *client, uint64_t id, const char *pv, uint32_t queue, uint32_t options, char *error,
                  size_t size) {
    return guarded(error, size, [&] {
        if (client->line(id) != nullptr) throw std::invalid_argument("this number has a PV already");
        if (pv[0] == '\0') throw std::invalid_argument("the name of the PV is empty");
        client->add(id, pv, queue, options);
    });
}

EXPORT void bp_remove(bp_client *client, uint64_t id) {
    guarded(nullptr, 0, [&] { client->remove(id); });
}

EXPORT size_t bp_poll(bp_client *client, bp_update *updates, size_t most) {
    size_t filled = 0;
    guarded(nullptr, 0, [&] { client->tend(); });
    guarded(nullptr, 0, [&] { filled = client->queue.poll(updates, most); });
    return filled;
}

EXPORT int bp_counted(const bp_client *client, uint64_t id, bp_counts *counts) {
    int known = 0;
    guarded(nullptr, 0, [&] {
        if (const beamport::Line *line = client->line(id)) {
            *counts = client->queue.counted(*line);
            counts->server_squash = client->server_squash(id);
            known = 1;
        }
    });
    return known;
}

// As `guarded`; BP_PUT_... is returned.
template <typename Work> static int written(const bp_elements *value, int is_array, char *error, size_t size, Work work) {
    int how = BP_PUT_REFUSED;
    const int failed = guarded(error, size, [&] {
        if (is_array == 0 && value->count != 1) throw std::invalid_argument("a value that is no array has one element");
        try {
            work();
        } catch (const beamport::NotWritten &e) {
            how = e.how;
            throw;
        }
    });
    return failed == 0 ? BP_PUT_DONE : how;
}

EXPORT int bp_put(bp_client *client, const char *pv, const bp_elements *value, uint32_t options, uint32_t timeout_ms,
                  char *error, size_t size) {
    const int is_array = (options & BP_PUT_ARRAY) != 0;
    return written(value, is_array, error, size, [&] { client->put(pv, *value, options, timeout_ms); });
}

EXPORT int bp_put_start(bp_client *client, uint64_t id, const bp_elements *value, int is_array, int32_t tag,
                        char *error, size_t size) {
    return written(value, is_array, error, size, [&] {
        if (client->line(id) == nullptr) throw std::invalid_argument("no PV has this number");
        client->put_start(id, *value, is_array != 0, tag);
    });
}
