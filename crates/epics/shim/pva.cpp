// pvAccess by PVXS. Its worker thread calls `Subscribed::drain`, which moves updates to the queue at once: a
// subscription's own queue never fills, and what is lost here is counted in one place.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <sstream>
#include <unordered_map>

// Updates of a queue are taken at once.
#define PVXS_ENABLE_EXPERT_API
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

// PVXS does not try again what a server has refused or ended. Its thread writes down what that is, and the thread that
// polls subscribes again after a pause.
class Ended {
  public:
    void add(uint64_t id) {
        std::lock_guard<std::mutex> guard(lock_);
        due_.push_back({Clock::now() + std::chrono::seconds(5), id});
        some_ = true;
    }

    // Those whose pause is over, once.
    std::vector<uint64_t> due() {
        std::vector<uint64_t> found;
        if (!some_) return found;
        std::lock_guard<std::mutex> guard(lock_);
        while (!due_.empty() && due_.front().first <= Clock::now()) {
            found.push_back(due_.front().second);
            due_.pop_front();
        }
        some_ = !due_.empty();
        return found;
    }

  private:
    using Clock = std::chrono::steady_clock;

    std::mutex lock_;
    std::deque<std::pair<Clock::time_point, uint64_t>> due_;
    std::atomic<bool> some_{false};
};

class Subscribed {
  public:
    Subscribed(uint64_t id, const char *pv, uint32_t size, bool pipeline, Queue &queue, Ended &ended)
        : line(id), name(pv), size(size), pipeline(pipeline), queue_(queue), ended_(ended) {}

    Line line;
    const std::string name;
    const uint32_t size;
    const bool pipeline;
    // Of the caller's thread.
    std::shared_ptr<client::Subscription> subscription;
    uint64_t server_squash = 0; // of the subscriptions before

    // Takes all that came since the last call: nothing comes meanwhile, because PVXS calls on its thread. `updates` is
    // memory for that.
    void drain(client::Subscription &from, std::vector<pvxs::Value> &updates) {
        size_t taken = 0;
        for (bool more = true; more;) {
            more = pop(from, updates);
            // A state takes a place too.
            taken += updates.empty() ? 1 : updates.size();
            for (size_t i = 0; i < updates.size(); i++) {
                // PVXS merges into the last update of a full queue.
                give(from, updates[i], !more && i + 1 == updates.size() && taken >= size);
            }
        }
        updates.clear();
    }

  private:
    // Takes the updates before the next state, or a state; false where there is nothing more.
    bool pop(client::Subscription &from, std::vector<pvxs::Value> &updates) {
        try {
            return from.pop(updates);
        } catch (const client::Connected &now) {
            reader_.connected();
            queue_.push(line, BP_CONNECTED, now.peerName);
        } catch (const client::Finished &) {
            end(BP_FINISHED, std::string());
        } catch (const client::Disconnect &) {
            queue_.push(line, BP_DISCONNECTED);
        } catch (const std::exception &e) {
            end(BP_REFUSED, e.what());
        }
        updates.clear();
        return true;
    }

    void end(uint32_t what, const std::string &why) {
        queue_.push(line, what, why);
        // The next subscription counts from 0.
        squashed_ = 0;
        ended_.add(line.id);
    }

    // `full`: it is the last of a queue that was full.
    void give(client::Subscription &from, const pvxs::Value &update, bool full) {
        try {
            const uint32_t changed = reader_.read(update);
            full_ = full_ || full;
            if (changed == 0) return;
            uint64_t squashed = 0;
            if (full_) {
                client::SubscriptionStat stat;
                from.stats(stat);
                squashed = stat.nCliSquash - squashed_;
                squashed_ = stat.nCliSquash;
                full_ = false;
            }
            queue_.push(line, BP_VALUE, reader_.state(), changed, squashed);
        } catch (const std::exception &e) {
            queue_.push(line, BP_REFUSED, e.what());
        }
    }

    Queue &queue_;
    Ended &ended_;
    PvaReader reader_;
    size_t squashed_ = 0;
    bool full_ = false; // updates may have been overwritten since `squashed_` was read
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
        auto one = std::make_shared<Subscribed>(id, pv, size, pipeline, queue, ended_);
        subscribe(one);
        all_.emplace(id, std::move(one));
    }

    void tend() override {
        for (const uint64_t id : ended_.due()) {
            const auto found = all_.find(id);
            if (found != all_.end()) subscribe(found->second);
        }
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

    uint64_t server_squash(uint64_t id) const override {
        const auto found = all_.find(id);
        return found != all_.end() ? squashed(*found->second) : 0;
    }

    void put(const char *pv, const bp_elements &value, bool is_array, uint32_t timeout_ms) override {
        put_pva(context_, pv, value, is_array, timeout_ms);
    }

  private:
    static uint64_t squashed(const Subscribed &one) {
        client::SubscriptionStat stat;
        if (one.subscription) one.subscription->stats(stat);
        return one.server_squash + stat.nSrvSquash;
    }

    void subscribe(const std::shared_ptr<Subscribed> &one) {
        one->server_squash = squashed(*one);
        one->subscription.reset();
        auto builder = context_.monitor(one->name);
        builder.record("queueSize", one->size).maskConnected(false).maskDisconnected(false).syncCancel(false);
        if (one->pipeline) builder.record("pipeline", true);
        builder.event([one, this](client::Subscription &from) { one->drain(from, updates_); });
        one->subscription = builder.exec();
    }

    Ended ended_;
    std::vector<pvxs::Value> updates_; // of the thread of PVXS
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
