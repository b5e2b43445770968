#include "ca_context.hpp"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include <arpa/inet.h>
#include <envDefs.h>
#include <epicsThread.h>
#include <errlog.h>
#include <sys/socket.h>
#include <unistd.h>

// Of libca; none of its headers has it.
extern "C" void caRepeaterThread(void *);

namespace beamport {
namespace {

// Lines of libca that are printed, for a whole process: a peer may cause any number.
const int MOST_LINES = 100;

int print(const char *format, va_list arguments) {
    static std::atomic<int> printed{0};
    return printed++ < MOST_LINES ? vfprintf(stderr, format, arguments) : 0;
}

void line(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print(format, arguments);
    va_end(arguments);
}

// Exceptions of requests reach their callbacks too; a name that two servers have is worth a line.
void complain(struct exception_handler_args of) {
    if (of.stat == ECA_DBLCHNL) line("Channel Access: %s: %s\n", ca_message(of.stat), of.ctx ? of.ctx : "");
}

void heard(void *, const char *message) { line("%s", message); }

// libca prints through errlog too. Somebody who asked for the lines of PVXS, which are printed so, gets all of both.
void limit_lines() {
    static std::once_flag once;
    std::call_once(once, [] {
        if (getenv("PVXS_LOG") != nullptr) return;
        eltc(0);
        errlogAddListener(heard, nullptr);
    });
}

bool taken(uint16_t port) {
    const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) return true;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(port);
    const bool failed = bind(descriptor, reinterpret_cast<sockaddr *>(&address), sizeof(address)) != 0;
    close(descriptor);
    return failed;
}

// libca learns of servers that begin from a repeater on the same machine, and starts a program `caRepeater` where there
// is none. No package of ours has that program: the same function runs in a thread here.
void repeat() {
    static std::once_flag once;
    std::call_once(once, [] {
        const uint16_t port = envGetInetPortConfigParam(&EPICS_CA_REPEATER_PORT, 5065);
        if (taken(port)) return;
        epicsThreadCreate("CAC-repeater", epicsThreadPriorityLow, epicsThreadGetStackSize(epicsThreadStackMedium),
                          caRepeaterThread, nullptr);
        for (int i = 0; i < 100 && !taken(port); i++) usleep(10000);
    });
}

} // namespace

void need(int status) {
    if (status != ECA_NORMAL) throw std::runtime_error(ca_message(status));
}

Attached::Attached(ca_client_context *context) : before_(ca_current_context()) {
    if (before_ != nullptr) ca_detach_context();
    const int status = ca_attach_context(context);
    if (status == ECA_NORMAL) return;
    if (before_ != nullptr) ca_attach_context(before_);
    need(status);
}

Attached::~Attached() {
    ca_detach_context();
    if (before_ != nullptr) ca_attach_context(before_);
}

Addresses::Addresses(const bp_settings &settings)
    : has_addresses_(settings.addresses != nullptr), has_name_servers_(settings.name_servers != nullptr),
      addresses_(has_addresses_ ? settings.addresses : ""),
      name_servers_(has_name_servers_ ? settings.name_servers : "") {}

Addresses::Set::Set(const Addresses &of) {
    static std::mutex one_at_a_time;
    lock_ = std::unique_lock<std::mutex>(one_at_a_time);
    if (of.has_addresses_) {
        put("EPICS_CA_ADDR_LIST", of.addresses_);
        put("EPICS_CA_AUTO_ADDR_LIST", "NO");
    }
    if (of.has_name_servers_) put("EPICS_CA_NAME_SERVERS", of.name_servers_);
}

void Addresses::Set::put(const char *name, const std::string &value) {
    const char *before = getenv(name);
    if (before != nullptr && value == before) return;
    saved_[count_++] = Saved{name, before != nullptr, before != nullptr ? before : ""};
    setenv(name, value.c_str(), 1);
}

Addresses::Set::~Set() {
    for (size_t i = 0; i < count_; i++) {
        if (saved_[i].there) {
            setenv(saved_[i].name, saved_[i].value.c_str(), 1);
        } else {
            unsetenv(saved_[i].name);
        }
    }
}

ca_client_context *new_context(const Addresses &addresses) {
    limit_lines();
    repeat();
    Addresses::Set set(addresses);
    ca_client_context *const before = ca_current_context();
    if (before != nullptr) ca_detach_context();
    const int status = ca_context_create(ca_enable_preemptive_callback);
    ca_client_context *made = status == ECA_NORMAL ? ca_current_context() : nullptr;
    if (made != nullptr) {
        ca_replace_printf_handler(print);
        ca_add_exception_event(complain, nullptr);
        ca_detach_context();
    }
    if (before != nullptr) ca_attach_context(before);
    need(status);
    return made;
}

void end_context(ca_client_context *context) {
    ca_client_context *const before = ca_current_context();
    if (before != nullptr) ca_detach_context();
    if (ca_attach_context(context) == ECA_NORMAL) ca_context_destroy();
    if (before != nullptr) ca_attach_context(before);
}

} // namespace beamport
