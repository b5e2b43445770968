// What waits for bp_poll: the updates of a client, bounded by bytes, in order for each PV.
#ifndef BEAMPORT_EPICS_QUEUE_HPP
#define BEAMPORT_EPICS_QUEUE_HPP

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "beamport_epics.h"

namespace beamport {

// Elements and what keeps them alive. A scalar that is no string stands in the object itself.
struct Elements {
    uint32_t type = BP_NONE;
    uint64_t count = 0;
    uint64_t bytes = 0;
    uint64_t own = 0;
    std::shared_ptr<const void> owner;

    // Valid as long as this object stays where it is.
    bp_elements given() const {
        const void *data = owner ? owner.get() : count ? static_cast<const void *>(&own) : nullptr;
        return bp_elements{type, 0, count, data, bytes};
    }

    template <typename T> static Elements scalar(uint32_t type, T value) {
        static_assert(sizeof(T) <= sizeof(own), "a scalar fits");
        Elements made;
        made.type = type;
        made.count = 1;
        made.bytes = sizeof(T);
        std::memcpy(&made.own, &value, sizeof(T));
        return made;
    }

    // `bytes` that were written by somebody else, such as an encoder or a copy.
    static Elements packed(uint32_t type, uint64_t count, std::vector<uint8_t> &&bytes);
    // Strings as BP_STRING has them. `at(i)` is the i-th as a pair of pointer and length.
    template <typename At> static Elements strings(uint64_t count, At at) {
        std::vector<uint8_t> packed;
        for (uint64_t i = 0; i < count; i++) {
            const std::pair<const char *, size_t> text = at(i);
            const uint32_t size = static_cast<uint32_t>(text.second);
            const size_t place = packed.size();
            packed.resize(place + sizeof(size) + size);
            std::memcpy(packed.data() + place, &size, sizeof(size));
            if (size != 0) std::memcpy(packed.data() + place + sizeof(size), text.first, size);
        }
        return Elements::packed(BP_STRING, count, std::move(packed));
    }
    static Elements string(const char *text, size_t size) {
        return strings(1, [=](uint64_t) { return std::make_pair(text, size); });
    }
};

struct Named {
    std::string name, description, source;
    Elements values;
};

// The part that only tables and images have. It does not change once it is made.
struct Extra {
    std::vector<Named> named;
    std::vector<bp_named> given; // points into `named`
    std::vector<uint64_t> dims;
    std::string codec;
    int64_t data_seconds = 0;
    uint64_t uncompressed = 0;
    uint64_t bytes = 0;
    uint32_t data_nanoseconds = 0;
    uint32_t codec_type = BP_U8;
    uint32_t dropped = 0; // attributes without a place in `named`
    int32_t unique_id = 0;
    bool has_unique_id = false;

    // Last step of making it.
    void finish();
};

// Texts that change seldom. Two threads count their references, so there is one count for all.
struct Texts {
    std::string alarm, units, type_id;
};

// All that an update says about a PV.
struct State {
    uint32_t form = BP_SCALAR;
    int16_t severity = 0;
    int16_t status = 0;
    int64_t seconds = 0;
    uint32_t nanoseconds = 0;
    int32_t user_tag = 0;
    uint64_t overruns = 0; // of an image: as bp_counts.server_squash
    std::string text;
    Elements value;
    std::shared_ptr<const Texts> texts; // null where all are empty
    std::shared_ptr<const Extra> extra;

    const std::string &alarm() const { return texts ? texts->alarm : none(); }
    // Changes one of the texts. False where it is that already.
    bool change(std::string Texts::*which, const std::string &text);

  private:
    static const std::string &none();
};

// An update that waits, or was given and is kept until the next call.
struct Node {
    uint32_t what = BP_VALUE;
    uint32_t changed = 0;
    uint64_t squashed = 0; // overwritten updates of this PV just before this one
    State state;

    // Of the queue.
    struct Line *line = nullptr;
    Node *before = nullptr, *after = nullptr; // of all PVs
    Node *later = nullptr;                    // of this PV
    uint64_t weight = 0;
};

// The part of the queue that is one PV's.
struct Line {
    explicit Line(uint64_t id) : id(id) {}

    const uint64_t id;
    Node *first = nullptr, *last = nullptr;
    bp_counts counts = {};
    bool gone = false; // removed: nothing of it is taken or given any more
};

class Queue {
  public:
    // Throws std::runtime_error where there is no descriptor left.
    explicit Queue(uint64_t limit);
    ~Queue();
    Queue(const Queue &) = delete;
    Queue &operator=(const Queue &) = delete;

    // From any thread. A PV that overwrote updates elsewhere says how many in `squashed`.
    void push(Line &line, uint32_t what, const State &state, uint32_t changed = 0, uint64_t squashed = 0);
    // An update about the channel alone.
    void push(Line &line, uint32_t what, const std::string &text = std::string());

    int descriptor() const { return descriptor_; }
    size_t poll(bp_update *updates, size_t most);
    void remove(Line &line);
    bp_counts counted(const Line &line) const;

  private:
    void link(Line &line, Node *node);
    void unlink_first(Line &line);
    void unlink(Node *node);
    void forget(Node *node);
    void overwrite(Line &line, Node *newest);
    void signal();
    void reset();
    size_t take(size_t most, bp_update *updates);

    const uint64_t limit_;
    int descriptor_;
    mutable std::mutex lock_;
    Node *head_ = nullptr, *tail_ = nullptr;
    uint64_t bytes_ = 0;
    bool signalled_ = false;
    int64_t signal_ = 1; // when the reader took what was signalled last, ns of the monotonic clock
    std::vector<Node *> spare_; // for the next updates
    std::vector<Node *> given_; // only of the thread that polls
};

} // namespace beamport

#endif
