// The state of libca that exists once for a process or a thread.
#ifndef BEAMPORT_EPICS_CA_CONTEXT_HPP
#define BEAMPORT_EPICS_CA_CONTEXT_HPP

#include <mutex>
#include <string>

#include <cadef.h>

#include "beamport_epics.h"

namespace beamport {

// Throws where libca says that a call has failed.
void need(int status);

// In its life the calling thread works with this context; it may have another before and afterwards.
class Attached {
  public:
    explicit Attached(ca_client_context *context);
    ~Attached();
    Attached(const Attached &) = delete;
    Attached &operator=(const Attached &) = delete;

  private:
    ca_client_context *const before_;
};

// In its life the addresses of the settings stand in the environment: libca reads them nowhere else.
class Addresses {
  public:
    explicit Addresses(const bp_settings &settings);

    // libca reads name servers with a context, and addresses with its first channel.
    class Set {
      public:
        explicit Set(const Addresses &of);
        ~Set();
        Set(const Set &) = delete;
        Set &operator=(const Set &) = delete;

      private:
        struct Saved {
            const char *name;
            bool there;
            std::string value;
        };
        void put(const char *name, const std::string &value);

        std::unique_lock<std::mutex> lock_;
        Saved saved_[3];
        size_t count_ = 0;
    };

  private:
    bool has_addresses_, has_name_servers_;
    std::string addresses_, name_servers_;
};

// A new context, attached to no thread.
ca_client_context *new_context(const Addresses &addresses);
// Ends the threads of a context.
void end_context(ca_client_context *context);

} // namespace beamport

#endif
