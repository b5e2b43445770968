// Channel Access by libca, whose threads call `Channel::...` below, one at a time for a client.
#include <atomic>
#include <memory>
#include <unordered_map>

#include <cadef.h>

#include "ca_context.hpp"
#include "ca_guard.hpp"
#include "ca_values.hpp"
#include "client.hpp"
#include "put_ca.hpp"

namespace beamport {
namespace {

class Channel {
  public:
    Channel(uint64_t id, const char *pv, bool is_read, Queue &queue)
        : line(id), name_(pv), is_read_(is_read), queue_(queue) {}

    // Of the caller's thread, with the context attached.
    void open() { need(ca_create_channel(name_.c_str(), on_connection, this, CA_PRIORITY_DEFAULT, &channel_)); }
    // Nothing is called afterwards.
    void close() {
        if (channel_ != nullptr) ca_clear_channel(channel_);
    }

    // Begins to write; the answer is BP_WRITTEN.
    void put(const bp_elements &value, bool is_array, int32_t tag) {
        if (ca_state(channel_) != cs_conn) throw NotWritten(BP_PUT_NO_SERVER, "no server has this PV");
        if (!answers_) answers_.reset(new Writing);
        written_ = tag;
        send_put(channel_, value, is_array, on_written, reinterpret_cast<void *>(static_cast<intptr_t>(tag)));
    }

    Line line;

  private:
    static void on_written(event_handler_args of) {
        Channel *channel = static_cast<Channel *>(ca_puser(of.chid));
        const int32_t tag = static_cast<int32_t>(reinterpret_cast<intptr_t>(of.usr));
        channel->guarded([&] {
            // That of an earlier write, which was ended, comes too late.
            if (tag != channel->written_) return;
            State state;
            state.user_tag = tag;
            if (of.status != ECA_NORMAL) {
                state.status = of.status == ECA_DISCONN ? BP_PUT_NO_SERVER : BP_PUT_REFUSED;
                state.text = ca_message(of.status);
            }
            channel->queue_.push(channel->line, BP_WRITTEN, state);
        });
    }

    static void on_connection(connection_handler_args of) {
        Channel *channel = static_cast<Channel *>(ca_puser(of.chid));
        channel->guarded([&] { of.op == CA_OP_CONN_UP ? channel->connected(of.chid) : channel->disconnected(); });
    }

    static void on_value(event_handler_args of) {
        Channel *channel = static_cast<Channel *>(of.usr);
        channel->guarded([&] { channel->value(of); });
    }

    static void on_properties(event_handler_args of) {
        Channel *channel = static_cast<Channel *>(of.usr);
        channel->guarded([&] { channel->properties(of); });
    }

    template <typename Work> void guarded(Work work) noexcept {
        try {
            try {
                work();
            } catch (const std::exception &e) {
                queue_.push(line, BP_REFUSED, e.what());
            }
        } catch (...) {
            // There is no memory even to say so.
        }
    }

    void connected(chid channel) {
        char host[256] = "";
        ca_get_host_name(channel, host, sizeof(host));
        queue_.push(line, BP_CONNECTED, host);
        if (!is_read_) return;
        const short type = ca_field_type(channel);
        const unsigned long count = ca_element_count(channel);
        reader_.connected(count > 1);
        // The properties first: a server answers in order, so that the first value has its units and its choice.
        if (type != DBR_STRING) {
            need(ca_create_subscription(dbf_type_to_DBR_CTRL(type), 1, channel, DBE_PROPERTY, on_properties, this,
                                        &properties_));
        }
        // As many elements as it has then: an array of at most one may have none.
        need(ca_create_subscription(dbf_type_to_DBR_TIME(type), 0, channel, DBE_VALUE | DBE_ALARM,
                                    on_value, this, &values_));
        need(ca_flush_io());
    }

    // libca would continue with the type that the channel had.
    void disconnected() {
        for (evid *one : {&properties_, &values_}) {
            if (*one != nullptr) ca_clear_subscription(*one);
            *one = nullptr;
        }
        queue_.push(line, BP_DISCONNECTED);
    }

    void value(const event_handler_args &of) {
        need(of.status);
        const uint32_t changed = reader_.value(of);
        give(changed);
    }

    void properties(const event_handler_args &of) {
        if (of.status == ECA_NORMAL && reader_.properties(of)) give(BP_CHANGED_UNITS);
    }

    void give(uint32_t changed) {
        queue_.push(line, BP_VALUE, reader_.state(), changed);
    }

    const std::string name_;
    const bool is_read_; // or else only its connection is watched
    std::atomic<int32_t> written_{0}; // tag of the newest write
    std::unique_ptr<Writing> answers_;       // they may come from the first write on, also late
    Queue &queue_;
    chid channel_ = nullptr;
    evid properties_ = nullptr, values_ = nullptr;
    CaReader reader_;
};

class CaClient final : public bp_client {
  public:
    explicit CaClient(const bp_settings &settings)
        : bp_client(settings.queue_bytes), addresses_(settings), context_(new_context(addresses_)) {}

    ~CaClient() override {
        // Ends its threads: nothing is called afterwards.
        end_context(context_);
    }

    void add(uint64_t id, const char *pv, uint32_t size, uint32_t) override {
        std::unique_ptr<Channel> one(new Channel(id, pv, size != 0, queue));
        Channel &channel = *one;
        // Known before it is called back.
        all_.emplace(id, std::move(one));
        try {
            open([&] { channel.open(); });
        } catch (...) {
            all_.erase(id);
            throw;
        }
    }

    void remove(uint64_t id) override {
        const auto found = all_.find(id);
        if (found == all_.end()) return;
        queue.remove(found->second->line);
        Attached attached(context_);
        found->second->close();
        all_.erase(found);
    }

    const Line *line(uint64_t id) const override {
        const auto found = all_.find(id);
        return found != all_.end() ? &found->second->line : nullptr;
    }

    void put(const char *pv, const bp_elements &value, uint32_t options, uint32_t timeout_ms) override {
        chid to = nullptr;
        open([&] { to = writer_.channel(pv); });
        Attached attached(context_);
        writer_.put(to, value, options, timeout_ms);
    }

    void put_start(uint64_t id, const bp_elements &value, bool is_array, int32_t tag) override {
        Attached attached(context_);
        all_.at(id)->put(value, is_array, tag);
    }

  private:
    // Runs what may open the first channel.
    template <typename Work> void open(Work work) {
        Attached attached(context_);
        if (opened_) return work();
        Addresses::Set set(addresses_);
        work();
        opened_ = true;
    }

    const Addresses addresses_;
    ca_client_context *const context_;
    std::unordered_map<uint64_t, std::unique_ptr<Channel>> all_;
    CaWriter writer_;
    bool opened_ = false;
};

} // namespace

std::unique_ptr<bp_client> open_ca(const bp_settings &settings) {
    return std::unique_ptr<bp_client>(new CaClient(settings));
}

} // namespace beamport
