/* The bare librdkafka beside which `beamport-bench kafka` measures: a producer and a consumer of one partition, and what
 * the measurement needs beside them. Compiled by `beamport-bench` with `cc` against the library that beamport uses, which
 * comes without its header.
 *
 *   kafka_client make    BROKERS TOPIC                          creates the topic, with one partition
 *   kafka_client remove  BROKERS TOPIC                          deletes it
 *   kafka_client produce BROKERS TOPIC BYTES COUNT [KEY=VALUE]  sends COUNT messages; all are acknowledged then
 *   kafka_client consume BROKERS TOPIC COUNT [KEY=VALUE]        reads COUNT messages, each byte once; prints SECONDS
 *   kafka_client watch   BROKERS TOPIC COUNT                    waits until the topic has COUNT messages; prints SECONDS
 *   kafka_client count   BROKERS TOPIC                          answers each line of stdin with the messages in the topic
 *   kafka_client send    BROKERS TOPIC [KEY=VALUE]              sends what stdin has; all is acknowledged at its end
 *   kafka_client receive BROKERS TOPIC [KEY=VALUE]              prints all messages of the topic, and waits for more
 *
 * `send` and `receive` have a frame for each message: its length (32 bits), for `send` then its time (64 bits, ms since
 * 1970), its bytes; numbers are those of this machine.
 *
 * SECONDS are those of COUNT messages, measured from the first hundredth to the last. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    int err;
    void *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private;
} message_t;
enum { PRODUCER = 0, CONSUMER = 1, QUEUE_FULL = -184, PARTITION_EOF = -191, OFFSET_BEGINNING = -2, F_COPY = 2 };
/* What the arguments of `rd_kafka_producev` are. */
enum { END, TOPIC, PARTITION = 3, VALUE, FLAGS = 7, TIMESTAMP };
enum { BATCH = 1024, PATIENCE_S = 200, ANSWER_MS = 60000 };

void *rd_kafka_conf_new(void);
int rd_kafka_conf_set(void *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_dr_msg_cb(void *, void (*)(void *, const message_t *, void *));
void *rd_kafka_new(int, void *, char *, size_t);
void *rd_kafka_topic_new(void *, const char *, void *);
const char *rd_kafka_err2str(int);
int rd_kafka_last_error(void);
int rd_kafka_poll(void *, int);
int rd_kafka_flush(void *, int);
int rd_kafka_produce(void *, int32_t, int, void *, size_t, const void *, size_t, void *);
int rd_kafka_producev(void *, ...);
int rd_kafka_consume_start(void *, int32_t, int64_t);
message_t *rd_kafka_consume(void *, int32_t, int);
ssize_t rd_kafka_consume_batch(void *, int32_t, int, message_t **, size_t);
void rd_kafka_message_destroy(message_t *);
int rd_kafka_query_watermark_offsets(void *, const char *, int32_t, int64_t *, int64_t *, int);
void *rd_kafka_queue_new(void *);
void *rd_kafka_queue_poll(void *, int);
int rd_kafka_event_error(void *);
void *rd_kafka_NewTopic_new(const char *, int, int, char *, size_t);
void rd_kafka_CreateTopics(void *, void **, size_t, void *, void *);
const void *rd_kafka_event_CreateTopics_result(void *);
const void **rd_kafka_CreateTopics_result_topics(const void *, size_t *);
void *rd_kafka_DeleteTopic_new(const char *);
void rd_kafka_DeleteTopics(void *, void **, size_t, void *, void *);
const void *rd_kafka_event_DeleteTopics_result(void *);
const void **rd_kafka_DeleteTopics_result_topics(const void *, size_t *);
int rd_kafka_topic_result_error(const void *);

static char text[512];
static int64_t delivered;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void check(const char *what, int code) {
    if (code) fail(what, rd_kafka_err2str(code));
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds of `count` messages, from `seen` of which the clock runs. */
static double from, seen;

static void see(int64_t messages, int64_t count) {
    if (!from && messages * 100 >= count) from = now(), seen = (double)messages;
    if (messages < count) return;
    if (seen == (double)count) fail("all messages came at once", "use more");
    printf("%.9f\n", (now() - from) * (double)count / ((double)count - seen));
}

static void on_delivery(void *client, const message_t *message, void *opaque) {
    (void)client, (void)opaque;
    check("a message was not delivered", message->err);
    delivered++;
}

static void *client(int type, const char *brokers, char **properties) {
    void *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", brokers, text, sizeof text)) fail("brokers", text);
    for (; *properties; properties++) {
        char *value = strchr(*properties, '=');
        if (!value) fail("not KEY=VALUE", *properties);
        *value++ = 0;
        if (rd_kafka_conf_set(conf, *properties, value, text, sizeof text)) fail(*properties, text);
    }
    if (type == PRODUCER) rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    void *made = rd_kafka_new(type, conf, text, sizeof text);
    if (!made) fail("no client", text);
    return made;
}

static void produce(void *client, const char *name, size_t bytes, int64_t count) {
    void *topic = rd_kafka_topic_new(client, name, NULL);
    unsigned char *payload = malloc(bytes);
    if (!topic || !payload) fail("produce", "no topic or no memory");
    for (size_t i = 0; i < bytes; i++) payload[i] = (unsigned char)((i * 2654435761u) >> 16);
    for (int64_t sent = 0; sent < count;) {
        if (rd_kafka_produce(topic, 0, F_COPY, payload, bytes, name, strlen(name), NULL)) {
            if (rd_kafka_last_error() != QUEUE_FULL) check("produce", rd_kafka_last_error());
            rd_kafka_poll(client, 1);
        } else if (++sent % BATCH == 0) {
            rd_kafka_poll(client, 0);
        }
    }
    check("flush", rd_kafka_flush(client, PATIENCE_S * 1000));
    if (delivered != count) fail("produce", "not all messages were delivered");
}

static void consume(void *client, const char *name, int64_t count) {
    static message_t *batch[BATCH];
    static volatile uint64_t sum;
    void *topic = rd_kafka_topic_new(client, name, NULL);
    if (!topic || rd_kafka_consume_start(topic, 0, OFFSET_BEGINNING)) check("consume", rd_kafka_last_error());
    for (int64_t messages = 0; messages < count; see(messages, count)) {
        int64_t left = count - messages;
        ssize_t came = rd_kafka_consume_batch(topic, 0, 1, batch, left < BATCH ? (size_t)left : BATCH);
        if (came < 0) check("consume", rd_kafka_last_error());
        for (ssize_t i = 0; i < came; i++) {
            if (batch[i]->err && batch[i]->err != PARTITION_EOF) check("consume", batch[i]->err);
            messages += !batch[i]->err;
            uint64_t all = 0, word;
            for (size_t at = 0; !batch[i]->err && at + sizeof word <= batch[i]->len; at += sizeof word) {
                memcpy(&word, (char *)batch[i]->payload + at, sizeof word);
                all += word;
            }
            sum += all;
            rd_kafka_message_destroy(batch[i]);
        }
    }
}

static void send_all(void *client, const char *name) {
    unsigned char *payload = NULL;
    int64_t sent = 0, time;
    uint32_t bytes, room = 0;
    while (fread(&bytes, sizeof bytes, 1, stdin) == 1) {
        if (bytes > room && !(payload = realloc(payload, room = bytes))) fail("send", "no memory");
        if (fread(&time, sizeof time, 1, stdin) != 1 || fread(payload, 1, bytes, stdin) != bytes) fail("send", "half a frame");
        int code;
        while ((code = rd_kafka_producev(client, TOPIC, name, PARTITION, 0, VALUE, payload, (size_t)bytes, FLAGS, F_COPY,
                                         TIMESTAMP, time, END)) == QUEUE_FULL)
            rd_kafka_poll(client, 1);
        check("send", code);
        sent++;
        rd_kafka_poll(client, 0);
        alarm(PATIENCE_S);
    }
    check("flush", rd_kafka_flush(client, PATIENCE_S * 1000));
    if (delivered != sent) fail("send", "not all messages were delivered");
}

static void receive(void *client, const char *name) {
    static message_t *batch[BATCH];
    void *topic = rd_kafka_topic_new(client, name, NULL);
    if (!topic || rd_kafka_consume_start(topic, 0, OFFSET_BEGINNING)) check("receive", rd_kafka_last_error());
    for (;;) {
        /* A batch alone would wait for its whole count: the first message is given at once, with those behind it. */
        batch[0] = rd_kafka_consume(topic, 0, 100);
        ssize_t came = batch[0] ? rd_kafka_consume_batch(topic, 0, 0, batch + 1, BATCH - 1) : 0;
        if (came < 0) check("receive", rd_kafka_last_error());
        came += batch[0] != NULL;
        for (ssize_t i = 0; i < came; i++) {
            if (batch[i]->err && batch[i]->err != PARTITION_EOF) check("receive", batch[i]->err);
            uint32_t bytes = batch[i]->len;
            if (!batch[i]->err && (fwrite(&bytes, sizeof bytes, 1, stdout) != 1 || fwrite(batch[i]->payload, 1, bytes, stdout) != bytes))
                fail("receive", "nobody reads");
            rd_kafka_message_destroy(batch[i]);
        }
        if (came > 0) alarm(PATIENCE_S);
        fflush(stdout);
    }
}

static void watch(void *client, const char *name, int64_t count) {
    const struct timespec pause = {0, 2000000};
    int64_t low, high = 0;
    while (high < count) {
        /* Until the leader of a new topic is known, there is no answer. */
        if (rd_kafka_query_watermark_offsets(client, name, 0, &low, &high, ANSWER_MS)) high = 0;
        see(high, count);
        nanosleep(&pause, NULL);
    }
    if (high != count) fail("watch", "the topic has more messages than were sent");
}

static void count_messages(void *client, const char *name) {
    char line[16];
    int64_t low, high;
    while (fgets(line, sizeof line, stdin)) {
        if (rd_kafka_query_watermark_offsets(client, name, 0, &low, &high, ANSWER_MS)) high = 0;
        printf("%lld\n", (long long)high);
        fflush(stdout);
    }
}

static void administer(void *client, const char *name, int make) {
    void *queue = rd_kafka_queue_new(client);
    void *topic = make ? rd_kafka_NewTopic_new(name, 1, 1, text, sizeof text) : rd_kafka_DeleteTopic_new(name);
    if (!topic) fail(name, text);
    (make ? rd_kafka_CreateTopics : rd_kafka_DeleteTopics)(client, &topic, 1, NULL, queue);
    void *event = rd_kafka_queue_poll(queue, ANSWER_MS);
    if (!event) fail(name, "no answer");
    check(name, rd_kafka_event_error(event));
    size_t count;
    const void **results = make ? rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count)
                                : rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &count);
    if (count != 1) fail(name, "no result");
    check(name, rd_kafka_topic_result_error(results[0]));
}

int main(int argc, char **argv) {
    const char *verb = argc < 4 ? "" : argv[1];
    /* Nobody waits for ever. */
    alarm(PATIENCE_S);
    if (!strcmp(verb, "make") || !strcmp(verb, "remove")) {
        administer(client(PRODUCER, argv[2], argv + 4), argv[3], *verb == 'm');
    } else if (!strcmp(verb, "produce") && argc >= 6) {
        produce(client(PRODUCER, argv[2], argv + 6), argv[3], strtoull(argv[4], NULL, 10), atoll(argv[5]));
    } else if (!strcmp(verb, "consume") && argc >= 5) {
        consume(client(CONSUMER, argv[2], argv + 5), argv[3], atoll(argv[4]));
    } else if (!strcmp(verb, "watch") && argc >= 5) {
        watch(client(CONSUMER, argv[2], argv + 5), argv[3], atoll(argv[4]));
    } else if (!strcmp(verb, "count")) {
        count_messages(client(PRODUCER, argv[2], argv + 4), argv[3]);
    } else if (!strcmp(verb, "send")) {
        send_all(client(PRODUCER, argv[2], argv + 4), argv[3]);
    } else if (!strcmp(verb, "receive")) {
        receive(client(CONSUMER, argv[2], argv + 4), argv[3]);
    } else {
        fail("usage", "kafka_client VERB BROKERS TOPIC ...");
    }
    return fflush(stdout);
}
