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

// A write that was begun.
struct Write {
    explicit Write(int32_t tag) : tag(tag) {}
    const int32_t tag;
    std::atomic<bool> open{true}; // no answer was given
};

class Subscribed {
  public:
    Subscribed(uint64_t id, const char *pv, uint32_t size, uint32_t options, Queue &queue, Ended &ended)
        : line(id), name(pv), size(size), options(options), queue_(queue), ended_(ended) {}

    Line line;
    const std::string name;
    const uint32_t size;
    const uint32_t options; // BP_PIPELINE...
    // Of the caller's thread. A PV that is not read has a connection alone.
    std::shared_ptr<client::Subscription> subscription;
    uint64_t server_squash = 0; // of the subscriptions before
    std::shared_ptr<client::Connect> connection;
    std::shared_ptr<client::Operation> write;

    // Its threads may be in a function of this object, which lives as long as that.
    void close() {
        subscription.reset();
        connection.reset();
        write.reset();
    }

    void connected() { push(BP_CONNECTED, State()); }
    void disconnected() {
        // PVXS would send a value that is not sent yet to the next server.
        if (const std::shared_ptr<Write> lost = writing(nullptr)) {
            written(*lost, BP_PUT_NO_SERVER, "the connection to the server was lost");
        }
        push(BP_DISCONNECTED, State());
    }
    void written(Write &which, int how, const std::string &why) {
        if (!which.open.exchange(false)) return;
        State state;
        state.user_tag = which.tag;
        state.status = static_cast<int16_t>(how);
        state.text = why;
        push(BP_WRITTEN, state);
    }
    // Sets the newest write, and returns the one before.
    std::shared_ptr<Write> writing(std::shared_ptr<Write> newest) {
        std::lock_guard<std::mutex> guard(lock_);
        writing_.swap(newest);
        return newest;
    }

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
    void push(uint32_t what, const State &state) noexcept {
        try {
            queue_.push(line, what, state);
        } catch (...) {
            // There is no memory even to say so.
        }
    }

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
            disconnected();
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
        overruns_ = reader_.state().overruns;
        ended_.add(line.id);
    }

    // `full`: it is the last of a queue that was full.
    void give(client::Subscription &from, const pvxs::Value &update, bool full) {
        try {
            const uint32_t changed = reader_.read(update);
            full_ = full_ || full;
            if (changed == 0) return;
            uint64_t squashed = 0;
            const bool is_image = reader_.state().form == BP_IMAGE;
            client::SubscriptionStat stat;
            if (full_ || is_image) from.stats(stat);
            if (full_) {
                squashed = stat.nCliSquash - squashed_;
                squashed_ = stat.nCliSquash;
                full_ = false;
            }
            if (is_image) reader_.overruns(overruns_ + stat.nSrvSquash);
            queue_.push(line, BP_VALUE, reader_.state(), changed, squashed);
        } catch (const std::exception &e) {
            queue_.push(line, BP_REFUSED, e.what());
        }
    }

    std::mutex lock_;
    std::shared_ptr<Write> writing_;
    Queue &queue_;
    Ended &ended_;
    PvaReader reader_;
    size_t squashed_ = 0;
    uint64_t overruns_ = 0; // of the subscriptions before
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
        for (const auto &one : all_) one.second->write.reset();
        // Ends its thread: nothing is called afterwards.
        context_.close();
    }

    void add(uint64_t id, const char *pv, uint32_t size, uint32_t options) override {
        auto one = std::make_shared<Subscribed>(id, pv, size, options, queue, ended_);
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
        found->second->close();
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

    void put(const char *pv, const bp_elements &value, uint32_t options, uint32_t timeout_ms) override {
        put_pva(context_, pv, value, options, timeout_ms);
    }

    void put_start(uint64_t id, const bp_elements &value, bool is_array, int32_t tag) override {
        const std::shared_ptr<Subscribed> one = all_.at(id);
        const auto write = std::make_shared<Write>(tag);
        // Ends the one before.
        one->write.reset();
        if (const std::shared_ptr<Write> before = one->writing(write)) before->open = false;
        const auto is_open = [write] { return write->open.load(); };
        const auto answered = [one, write](int how, const std::string &why) { one->written(*write, how, why); };
        one->write = begin_put_pva(context_, one->name, value, is_array, is_open, answered);
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
        if (one->size == 0) {
            auto watch = context_.connect(one->name);
            watch.onConnect([one] { one->connected(); }).onDisconnect([one] { one->disconnected(); }).syncCancel(false);
            one->connection = watch.exec();
            return;
        }
        auto builder = context_.monitor(one->name);
        builder.maskConnected(false).maskDisconnected(false).syncCancel(false);
        // As text: servers on pvDatabase read nothing else, and keep 2 updates.
        builder.record("queueSize", std::to_string(one->size));
        if ((one->options & BP_BESIDE) != 0) builder.field("alarm").field("timeStamp").field("display");
        if ((one->options & BP_PIPELINE) != 0) builder.record("pipeline", std::string("true"));
        builder.event([one, this](client::Subscription &from) { one->drain(from, updates_); });
        one->subscription = builder.exec();
    }

    Ended ended_;
    std::vector<pvxs::Value> updates_; // of the thread of PVXS
    client::Context context_;
    std::unordered_map<uint64_t, std::shared_ptr<Subscribed>> all_;
};

// A mistake of a peer is an update; the library would print it each time. By itself it warns of addresses
// that it cannot use, and PVs that two servers have.
void quiet() {
    if (getenv("PVXS_LOG") != nullptr) {
        pvxs::logger_config_env();
    } else {
        pvxs::logger_level_set("pvxs.*", 0);
        for (const char *about : {"pvxs.client.dup", "pvxs.config"}) pvxs::logger_level_set(about, pvxs::Level::Warn);
    }
}

} // namespace

std::unique_ptr<bp_client> open_pva(const bp_settings &settings) {
    quiet();
    return std::unique_ptr<bp_client>(new PvaClient(settings));
}

} // namespace beamport
