/* The EPICS beside which `beamport-bench epics` measures: servers of pvAccess that keep a pace, and bare clients that take
 * each update and do nothing with it. Compiled by `beamport-bench` with `c++` against the libraries that beamport uses.
 *
 *   epics_peer numbers PVS HZ  serves the doubles bench:0, bench:1 and so on, HZ updates a second of each
 *   epics_peer frames SIDE HZ  serves bench:0, an NTNDArray of SIDE x SIDE uint8
 *   epics_peer pva PVS         takes the updates of bench:0, bench:1 and so on by PVXS
 *   epics_peer ca PVS          the same by libca
 *
 * A server says `serving`. Each line on its stdin is a number of seconds in which it sends updates, spread evenly, and is
 * answered by how many that were. Each line on the stdin of a client is answered by how many updates have come. */
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <cadef.h>
#include <pvxs/client.h>
#include <pvxs/log.h>
#include <pvxs/nt.h>
#include <pvxs/server.h>
#include <pvxs/sharedpv.h>

using Clock = std::chrono::steady_clock;
using pvxs::Value;
using pvxs::server::SharedPV;

namespace {

// Updates of a subscription that wait: as many as beamport asks for.
const uint32_t QUEUE = 100;
// Pause of a server between two bursts.
const std::chrono::microseconds PAUSE(1000);

std::string name(uint64_t number) { return "bench:" + std::to_string(number); }

void stamp(Value &update) {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
    update["timeStamp.secondsPastEpoch"] = now / 1000000000;
    update["timeStamp.nanoseconds"] = static_cast<int32_t>(now % 1000000000);
}

// Serves PVs; `post` sends the update with a number to the PV whose turn it is.
template <typename Post> void serve(std::vector<SharedPV> &pvs, double rate, Post post) {
    auto server = pvxs::server::Server::fromEnv();
    for (size_t at = 0; at < pvs.size(); at++) server.addPV(name(at), pvs[at]);
    server.start();
    std::cout << "serving" << std::endl;
    uint64_t number = 0;
    for (double seconds; std::cin >> seconds;) {
        const auto begin = Clock::now();
        const uint64_t count = static_cast<uint64_t>(seconds * rate);
        for (uint64_t sent = 0; sent < count; std::this_thread::sleep_for(PAUSE)) {
            const double since = std::chrono::duration<double>(Clock::now() - begin).count();
            const uint64_t due = since < seconds ? static_cast<uint64_t>(since * rate) : count;
            for (; sent < due; sent++, number++) post(pvs[number % pvs.size()], number);
        }
        std::cout << count << std::endl;
    }
    server.stop();
}

void numbers(uint64_t count, double hz) {
    const Value type = pvxs::nt::NTScalar{pvxs::TypeCode::Float64}.create();
    std::vector<SharedPV> pvs;
    for (uint64_t at = 0; at < count; at++) {
        Value first = type.cloneEmpty();
        first["value"] = 0.0;
        stamp(first);
        pvs.push_back(SharedPV::buildReadonly());
        pvs.back().open(first);
    }
    serve(pvs, static_cast<double>(count) * hz, [&](SharedPV &pv, uint64_t number) {
        Value update = type.cloneEmpty();
        update["value"] = static_cast<double>(number);
        stamp(update);
        pv.post(update);
    });
}

void frames(uint64_t side, double hz) {
    const Value type = pvxs::nt::NTNDArray{}.create();
    // As many as a simulated camera of beamport shows in turn.
    std::array<pvxs::shared_array<const uint8_t>, 16> shown;
    uint32_t random = 1;
    for (auto &one : shown) {
        pvxs::shared_array<uint8_t> pixels(side * side);
        for (uint8_t &pixel : pixels) pixel = static_cast<uint8_t>((random = random * 1664525 + 1013904223) >> 24);
        one = pixels.freeze();
    }
    const auto make = [&](uint64_t number) {
        Value update = type.cloneEmpty();
        update["value->ubyteValue"] = shown[number % shown.size()];
        update["uniqueId"] = static_cast<int32_t>(number);
        auto dimensions = update["dimension"];
        pvxs::shared_array<Value> sizes(2);
        for (Value &size : sizes) {
            size = dimensions.allocMember();
            size["size"] = static_cast<int32_t>(side);
            size["fullSize"] = static_cast<int32_t>(side);
            size["binning"] = 1;
        }
        dimensions = sizes.freeze();
        stamp(update);
        return update;
    };
    std::vector<SharedPV> pvs{SharedPV::buildReadonly()};
    pvs[0].open(make(0));
    // The first is number 0: those that follow are counted from 1.
    serve(pvs, hz, [&](SharedPV &pv, uint64_t number) { pv.post(make(number + 1)); });
}

std::atomic<uint64_t> taken{0};

// Says how many updates have come, until nobody asks any more.
void answer() {
    for (std::string line; std::getline(std::cin, line);) std::cout << taken << std::endl;
}

void pva(uint64_t count) {
    auto context = pvxs::client::Context::fromEnv();
    std::vector<std::shared_ptr<pvxs::client::Subscription>> all;
    for (uint64_t at = 0; at < count; at++) {
        auto builder = context.monitor(name(at));
        builder.record("queueSize", QUEUE).maskConnected(true).maskDisconnected(true);
        builder.event([](pvxs::client::Subscription &from) {
            while (from.pop()) taken++;
        });
        all.push_back(builder.exec());
    }
    answer();
}

void need(int status) {
    if (status != ECA_NORMAL) throw std::runtime_error(ca_message(status));
}

void on_update(event_handler_args) { taken++; }

void on_connection(connection_handler_args of) {
    if (of.op != CA_OP_CONN_UP) return;
    need(ca_create_subscription(DBR_TIME_DOUBLE, 1, of.chid, DBE_VALUE | DBE_ALARM, on_update, nullptr, nullptr));
    need(ca_flush_io());
}

void ca(uint64_t count) {
    need(ca_context_create(ca_enable_preemptive_callback));
    for (uint64_t at = 0; at < count; at++) {
        chid channel;
        need(ca_create_channel(name(at).c_str(), on_connection, nullptr, CA_PRIORITY_DEFAULT, &channel));
    }
    need(ca_flush_io());
    answer();
}

} // namespace

int main(int argc, char **argv) {
    const std::string verb = argc > 2 ? argv[1] : "";
    const uint64_t count = argc > 2 ? strtoull(argv[2], nullptr, 10) : 0;
    const double hz = argc > 3 ? atof(argv[3]) : 0;
    // Nobody waits for ever.
    alarm(600);
    // A client that ends is no error.
    pvxs::logger_level_set("pvxs.*", 0);
    try {
        if (verb == "numbers") numbers(count, hz);
        else if (verb == "frames") frames(count, hz);
        else if (verb == "pva") pva(count);
        else if (verb == "ca") ca(count);
        else throw std::invalid_argument("epics_peer VERB COUNT [HZ]");
    } catch (const std::exception &e) {
        std::cerr << e.what() << std::endl;
        return 1;
    }
    // Threads of the libraries run on: their objects are not destroyed under them.
    _Exit(0);
}
