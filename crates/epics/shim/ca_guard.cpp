// A guard before libca, which trusts servers (EPICS 7.0.10): one that is wrong or hostile destroys the memory of the
// process. libca converts as many elements as a header names, also past the end of the message; and it believes a server
// that speaks of a channel of another one, which is then taken from a list in which it is not, or that answers a request
// which nobody made: that takes a subscription from a table, and its removal never ends.
//
// libca calls some of its methods through its table of symbols. The loader looks for them in the library that was
// opened, which is this one, and then in those that it needs. So the methods below are called, and call those of libca
// for messages that are right. For others they return what libca's own return for what is not understood or not
// expected.
#include "ca_guard.hpp"

#include <atomic>

#include <arpa/inet.h>
#include <dlfcn.h>

#include <cadef.h>
#include <caProto.h>

class callbackManager;
class epicsMutex;
class epicsTime;
class tcpiiu;
template <class T> class epicsGuard;

// The header of a message, which libca has in this order.
struct caHdrLargeArray {
    ca_uint32_t m_postsize;
    ca_uint32_t m_count;
    ca_uint32_t m_cid;
    ca_uint32_t m_available;
    ca_uint16_t m_dataType;
    ca_uint16_t m_cmmd;
};

// A channel.
class nciu {
  public:
    const char *pHostName(epicsGuard<epicsMutex> &) const;
};

// A connection.
class __attribute__((visibility("default"))) tcpiiu {
  public:
    bool connectNotify(epicsGuard<epicsMutex> &, nciu &);
    const char *pHostName(epicsGuard<epicsMutex> &) const;
};

class __attribute__((visibility("default"))) cac {
  public:
    bool executeResponse(callbackManager &, tcpiiu &, const epicsTime &, caHdrLargeArray &, char *);
    void disconnectChannel(epicsGuard<epicsMutex> &, epicsGuard<epicsMutex> &, nciu &);
};

namespace {

using Execute = bool (*)(cac *, callbackManager &, tcpiiu &, const epicsTime &, caHdrLargeArray &, char *);
using Connect = bool (*)(tcpiiu *, epicsGuard<epicsMutex> &, nciu &);
using Disconnect = void (*)(cac *, epicsGuard<epicsMutex> &, epicsGuard<epicsMutex> &, nciu &);

// The connection whose message this thread works on.
thread_local const tcpiiu *current = nullptr;

class Current {
  public:
    explicit Current(const tcpiiu &connection) { current = &connection; }
    ~Current() { current = nullptr; }
};

// The name that is compared lies in a connection.
bool has(const tcpiiu &connection, const nciu &channel, epicsGuard<epicsMutex> &guard) {
    return channel.pHostName(guard) == connection.pHostName(guard);
}

// A method of libca; null where there is none of this name.
void *of_libca(const char *name) {
    Dl_info libca;
    if (dladdr(reinterpret_cast<const void *>(&ca_message), &libca) == 0) return nullptr;
    void *const library = dlopen(libca.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return library != nullptr ? dlsym(library, name) : nullptr;
}

// Writes that wait for their answers.
std::atomic<int> writes{0};

// Whether libca may take the answer to such a request. Nobody here reads but libca, for subscriptions of a connection
// that is silent no longer: their values would come twice.
bool is_expected(unsigned request) {
    if (request == CA_PROTO_READ || request == CA_PROTO_READ_NOTIFY) return false;
    return request != CA_PROTO_WRITE_NOTIFY || writes != 0;
}

// Whether a message has the elements that its header names.
bool has_all(const caHdrLargeArray &header) {
    // libca refuses an unknown type, and takes a message without content for the end of a subscription.
    if (INVALID_DB_REQ(header.m_dataType) || header.m_postsize == 0) return true;
    const uint64_t empty = dbr_size[header.m_dataType] - dbr_value_size[header.m_dataType];
    return empty + uint64_t{header.m_count} * dbr_value_size[header.m_dataType] <= header.m_postsize;
}

} // namespace

namespace beamport {

Writing::Writing() { writes++; }
Writing::~Writing() { writes--; }

} // namespace beamport

bool cac::executeResponse(callbackManager &manager, tcpiiu &connection, const epicsTime &now, caHdrLargeArray &header,
                          char *content) {
    static const Execute libca = reinterpret_cast<Execute>(
        of_libca("_ZN3cac15executeResponseER15callbackManagerR6tcpiiuRK9epicsTimeR15caHdrLargeArrayPc"));
    switch (header.m_cmmd) {
    case CA_PROTO_EVENT_ADD:
        if (!has_all(header)) return false;
        break;
    case CA_PROTO_ERROR:
        // The header of the request, and a text.
        if (header.m_postsize <= sizeof(caHdr)) return false;
        content[header.m_postsize - 1] = '\0';
        if (!is_expected(ntohs(reinterpret_cast<const caHdr *>(content)->m_cmmd))) return true;
        break;
    default:
        if (!is_expected(header.m_cmmd)) return true;
        break;
    }
    Current here(connection);
    return libca != nullptr && libca(this, manager, connection, now, header, content);
}

// A server answers that it serves a channel.
bool tcpiiu::connectNotify(epicsGuard<epicsMutex> &guard, nciu &channel) {
    static const Connect libca =
        reinterpret_cast<Connect>(of_libca("_ZN6tcpiiu13connectNotifyER10epicsGuardI10epicsMutexER4nciu"));
    return has(*this, channel, guard) && libca != nullptr && libca(this, guard, channel);
}

// A server ends a channel, or something else does.
void cac::disconnectChannel(epicsGuard<epicsMutex> &callback, epicsGuard<epicsMutex> &guard, nciu &channel) {
    static const Disconnect libca = reinterpret_cast<Disconnect>(
        of_libca("_ZN3cac17disconnectChannelER10epicsGuardI10epicsMutexES3_R4nciu"));
    if (current != nullptr && !has(*current, channel, guard)) return;
    if (libca != nullptr) libca(this, callback, guard, channel);
}
