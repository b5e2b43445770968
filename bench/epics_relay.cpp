/* The bare program beside which `beamport-bench epics-kafka` measures how long a change takes: PVXS -> librdkafka.
 * Compiled by `beamport-bench` with `c++` against the libraries that beamport uses.
 *
 *   epics_relay BROKERS TOPIC [KEY=VALUE]  sends the time stamp of each update of bench:0, ns since 1970 as 64 bits of
 *                                          this machine, until its stdin ends */
#include <cstdint>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string>

#include <unistd.h>

#include <pvxs/client.h>
#include <pvxs/log.h>

extern "C" {
void *rd_kafka_conf_new(void);
int rd_kafka_conf_set(void *, const char *, const char *, char *, size_t);
void *rd_kafka_new(int, void *, char *, size_t);
void *rd_kafka_topic_new(void *, const char *, void *);
int rd_kafka_produce(void *, int32_t, int, void *, size_t, const void *, size_t, void *);
int rd_kafka_poll(void *, int);
int rd_kafka_flush(void *, int);
}

namespace {

const int PRODUCER = 0, COPY = 2;
char text[512];

void set(void *conf, const char *name, const char *value) {
    if (rd_kafka_conf_set(conf, name, value, text, sizeof text)) throw std::runtime_error(text);
}

void *producer(const char *brokers, char **properties) {
    void *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", brokers);
    for (; *properties; properties++) {
        const std::string both = *properties;
        const size_t at = both.find('=');
        set(conf, both.substr(0, at).c_str(), both.substr(at + 1).c_str());
    }
    void *made = rd_kafka_new(PRODUCER, conf, text, sizeof text);
    if (!made) throw std::runtime_error(text);
    return made;
}

void relay(void *client, const char *name) {
    void *topic = rd_kafka_topic_new(client, name, nullptr);
    auto context = pvxs::client::Context::fromEnv();
    auto builder = context.monitor("bench:0");
    builder.record("queueSize", 100u).maskConnected(true).maskDisconnected(true);
    builder.event([=](pvxs::client::Subscription &from) {
        while (const pvxs::Value update = from.pop()) {
            int64_t time = update["timeStamp.secondsPastEpoch"].as<int64_t>() * 1000000000;
            time += update["timeStamp.nanoseconds"].as<int64_t>();
            rd_kafka_produce(topic, 0, COPY, &time, sizeof time, "bench:0", 7, nullptr);
            rd_kafka_poll(client, 0);
        }
    });
    auto subscription = builder.exec();
    for (char byte; read(0, &byte, 1) > 0;) {
    }
    subscription->cancel();
    rd_kafka_flush(client, 10000);
}

} // namespace

int main(int argc, char **argv) {
    // Nobody waits for ever, and a server that ends is no error.
    alarm(600);
    pvxs::logger_level_set("pvxs.*", 0);
    try {
        if (argc < 3) throw std::invalid_argument("epics_relay BROKERS TOPIC [KEY=VALUE]");
        relay(producer(argv[1], argv + 3), argv[2]);
    } catch (const std::exception &e) {
        std::cerr << e.what() << std::endl;
        _exit(1);
    }
    _exit(0);
}
