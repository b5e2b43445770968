// pvAccess by PVXS. Its worker thread calls `Subscribed::drain`, which moves updates to the queue at once: a
// subscription's own queue never fills, and what is lost here is counted in one place.
#include <cstdlib>
#include <sstream>
#include <unordered_map>

#include <pvxs/client.h>
#include <pvxs/log.h>

#include "client.hpp"
#include "pva_values.hpp"
#include "put_pva.hpp"

namespace client = pvxs::client;

namespace beamport {
namespace {

std::vector<std::string> words(const char *of) {
    std::istringstream text{std::string(of)};
    std::vector<std::string> found;
    for (std::string word; text >> word;) found.push_back(word);
    return found;
}

class Subscribed {
  public:
    Subscribed(uint64_t id, Queue &queue) : line(id), queue_(queue) {}

    Line line;
    std::shared_ptr<client::Subscription> subscription; // of the caller's thread

    void drain(client::Subscription &from) {
        while (pop(from)) {
        }
    }

  private:
    // Takes one update or state; false where there is none.
    bool pop(client::Subscription &from) {
        try {
            const pvxs::Value update = from.pop();
            if (!update) return false;
            if (const uint32_t changed = reader_.read(update)) give(from, changed);
        } catch (const client::Connected &now) {
            reader_.connected();
            queue_.push(line, BP_CONNECTED, now.peerName);
        } catch (const client::Finished &) {
            queue_.push(line, BP_FINISHED);
        } catch (const client::Disconnect &) {
            queue_.push(line, BP_DISCONNECTED);
        } catch (const std::exception &e) {
            queue_.push(line, BP_REFUSED, e.what());
        }
        return true;
    }

    void give(client::Subscription &from, uint32_t changed) {
        client::SubscriptionStat stat;
        from.stats(stat);
        // PVXS merges into the last update of its queue.
        uint64_t squashed = 0;
        if (stat.nQueue == 0) {
            squashed = stat.nCliSquash - squashed_;
            squashed_ = stat.nCliSquash;
        }
        queue_.push(line, BP_VALUE, reader_.state(), changed, squashed);
        if (stat.nSrvSquash != server_squashed_) {
            queue_.server_squashed(line, stat.nSrvSquash - server_squashed_);
            server_squashed_ = stat.nSrvSquash;
        }
    }

    Queue &queue_;
    PvaReader reader_;
    size_t squashed_ = 0, server_squashed_ = 0;
};

class PvaClient final : public bp_client {
  public:
    explicit PvaClient(const bp_settings &settings) : bp_client(settings.queue_bytes) {
        client::Config config = client::Config::fromEnv();
        if (settings.addresses != nullptr) {
            config.addressList = words(settings.addresses);
            config.autoAddrList = false;
        }
        if (settings.name_servers != nullptr) config.nameServers = words(settings.name_servers);
        context_ = config.build();
    }

    ~PvaClient() override {
        // Ends its thread: nothing is called afterwards.
        context_.close();
    }

    void add(uint64_t id, const char *pv, uint32_t size, bool pipeline) override {
        auto one = std::make_shared<Subscribed>(id, queue);
        auto builder = context_.monitor(pv);
        builder.record("queueSize", size).maskConnected(false).maskDisconnected(false).syncCancel(false);
        if (pipeline) builder.record("pipeline", true);
        builder.event([one](client::Subscription &from) { one->drain(from); });
        one->subscription = builder.exec();
        all_.emplace(id, std::move(one));
    }

    void remove(uint64_t id) override {
        const auto found = all_.find(id);
        if (found == all_.end()) return;
        queue.remove(found->second->line);
        // Its thread may be in `drain`: the object lives as long as that.
        found->second->subscription.reset();
        all_.erase(found);
    }

    const Line *line(uint64_t id) const override {
        const auto found = all_.find(id);
        return found != all_.end() ? &found->second->line : nullptr;
    }

    void put(const char *pv, const bp_elements &value, bool is_array, uint32_t timeout_ms) override {
        put_pva(context_, pv, value, is_array, timeout_ms);
    }

  private:
    client::Context context_;
    std::unordered_map<uint64_t, std::shared_ptr<Subscribed>> all_;
};

// What a peer does wrong is an update; the library would print it each time.
void quiet() {
    if (getenv("PVXS_LOG") != nullptr) {
        pvxs::logger_config_env();
    } else {
        pvxs::logger_level_set("pvxs.*", 0);
    }
}

} // namespace

std::unique_ptr<bp_client> open_pva(const bp_settings &settings) {
    quiet();
    return std::unique_ptr<bp_client>(new PvaClient(settings));
}

} // namespace beamport
