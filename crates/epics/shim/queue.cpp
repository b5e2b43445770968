#include "queue.hpp"

#include <cerrno>
#include <ctime>
#include <stdexcept>

#include <sys/timerfd.h>
#include <unistd.h>

namespace beamport {
namespace {

// Nodes that are kept while nothing waits.
const size_t MOST_SPARE = 10000;
// Shortest time between two signals, ns: waking a thread for each update would cost as much as the update. One that
// comes alone is signalled at once.
const int64_t PAUSE = 2000000;

int64_t now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

bp_text text(const std::string &of) { return bp_text{of.data(), of.size()}; }

uint64_t weight_of(const State &state) {
    uint64_t weight = sizeof(Node) + state.text.size() + state.alarm().size() + state.value.bytes;
    if (state.extra) weight += state.extra->bytes;
    return weight;
}

void fill(bp_update &update, const Node &node) {
    const State &state = node.state;
    update = bp_update{};
    update.id = node.line->id;
    update.what = node.what;
    update.form = state.form;
    update.count = state.overruns;
    update.seconds = state.seconds;
    update.nanoseconds = state.nanoseconds;
    update.user_tag = state.user_tag;
    update.changed = node.changed;
    update.severity = state.severity;
    update.status = state.status;
    update.text = text(state.text);
    if (const Texts *texts = state.texts.get()) {
        update.alarm = text(texts->alarm);
        update.units = text(texts->units);
        update.type_id = text(texts->type_id);
    }
    update.value = state.value.given();
    update.codec_type = BP_U8;
    if (const Extra *extra = state.extra.get()) {
        update.columns_count = extra->given.size();
        update.columns = extra->given.data();
        update.dims_count = extra->dims.size();
        update.dims = extra->dims.data();
        update.unique_id = extra->unique_id;
        update.has_unique_id = extra->has_unique_id;
        update.data_seconds = extra->data_seconds;
        update.data_nanoseconds = extra->data_nanoseconds;
        update.codec = text(extra->codec);
        update.uncompressed = extra->uncompressed;
        update.codec_type = extra->codec_type;
        update.dropped = extra->dropped;
    }
}

void fill_squashed(bp_update &update, const Node &node) {
    update = bp_update{};
    update.id = node.line->id;
    update.what = BP_SQUASHED;
    update.count = node.squashed;
}

} // namespace

Elements Elements::packed(uint32_t type, uint64_t count, std::vector<uint8_t> &&bytes) {
    Elements made;
    made.type = type;
    made.count = count;
    made.bytes = bytes.size();
    auto kept = std::make_shared<std::vector<uint8_t>>(std::move(bytes));
    if (made.bytes != 0) made.owner = std::shared_ptr<const void>(kept, kept->data());
    return made;
}

bool State::change(std::string Texts::*which, const std::string &text) {
    if (text == (texts ? *texts.*which : none())) return false;
    auto changed = texts ? std::make_shared<Texts>(*texts) : std::make_shared<Texts>();
    *changed.*which = text;
    texts = std::move(changed);
    return true;
}

const std::string &State::none() {
    static const std::string empty;
    return empty;
}

void Extra::finish() {
    bytes = sizeof(Extra) + dims.size() * sizeof(uint64_t);
    given.reserve(named.size());
    for (const Named &one : named) {
        given.push_back(bp_named{text(one.name), text(one.description), text(one.source), one.values.given()});
        bytes += sizeof(Named) + sizeof(bp_named) + one.name.size() + one.description.size() + one.source.size();
        bytes += one.values.bytes;
    }
}

Queue::Queue(uint64_t limit) : limit_(limit), descriptor_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (descriptor_ < 0) throw std::runtime_error(std::string("no descriptor for the queue: ") + strerror(errno));
}

Queue::~Queue() {
    for (Node *node : given_) delete node;
    for (Node *node : spare_) delete node;
    while (head_ != nullptr) {
        Node *node = head_;
        head_ = node->after;
        delete node;
    }
    close(descriptor_);
}

void Queue::push(Line &line, uint32_t what, const std::string &text) {
    State state;
    state.text = text;
    push(line, what, state);
}

void Queue::push(Line &line, uint32_t what, const State &state, uint32_t changed, uint64_t squashed) {
    std::lock_guard<std::mutex> guard(lock_);
    if (line.gone) return;
    if (spare_.empty()) spare_.push_back(new Node);
    Node *node = spare_.back();
    spare_.pop_back();
    node->what = what;
    node->changed = changed;
    node->squashed = squashed;
    node->state = state;
    node->weight = weight_of(state);
    line.counts.client_squash += squashed;
    link(line, node);
    overwrite(line, node);
    signal();
}

void Queue::link(Line &line, Node *node) {
    node->line = &line;
    node->later = nullptr;
    node->after = nullptr;
    node->before = tail_;
    (tail_ != nullptr ? tail_->after : head_) = node;
    tail_ = node;
    (line.last != nullptr ? line.last->later : line.first) = node;
    line.last = node;
    bytes_ += node->weight;
    if (node->what == BP_VALUE) line.counts.waiting += 1;
}

// Takes a node from the order of all PVs.
void Queue::unlink(Node *node) {
    (node->before != nullptr ? node->before->after : head_) = node->after;
    (node->after != nullptr ? node->after->before : tail_) = node->before;
    bytes_ -= node->weight;
    if (node->what == BP_VALUE) node->line->counts.waiting -= 1;
}

// Takes the oldest node of a PV from both orders.
void Queue::unlink_first(Line &line) {
    Node *node = line.first;
    line.first = node->later;
    if (line.first == nullptr) line.last = nullptr;
    unlink(node);
}

// Above the limit, the oldest updates of the PV give way to its newest. States of the channel stay, unless a newer
// one has come: whoever reads late must not take a PV for connected that is not.
void Queue::overwrite(Line &line, Node *newest) {
    const bool all = newest->what != BP_VALUE;
    Node *kept = nullptr;
    Node *node = line.first;
    while (bytes_ > limit_ && node != newest) {
        Node *later = node->later;
        if (all || node->what == BP_VALUE) {
            (kept != nullptr ? kept->later : line.first) = later;
            unlink(node);
            later->squashed += node->squashed;
            if (node->what == BP_VALUE) {
                later->squashed += 1;
                line.counts.client_squash += 1;
                if (later->what == BP_VALUE) later->changed |= node->changed;
            }
            forget(node);
        } else {
            kept = node;
        }
        node = later;
    }
}

void Queue::signal() {
    if (signalled_) return;
    // A time that is over is due at once.
    const int64_t due = signal_ + PAUSE;
    const itimerspec timer = {{0, 0}, {due / 1000000000, due % 1000000000}};
    signalled_ = timerfd_settime(descriptor_, TFD_TIMER_ABSTIME, &timer, nullptr) == 0;
}

// Before its time the descriptor cannot be read: it becomes readable once more than there is to give.
void Queue::reset() {
    uint64_t count;
    if (!signalled_ || read(descriptor_, &count, sizeof(count)) != sizeof(count)) return;
    signalled_ = false;
    signal_ = now();
}

// Keeps a node for another update, without what it held.
void Queue::forget(Node *node) {
    node->state = State();
    if (spare_.size() < MOST_SPARE) return spare_.push_back(node);
    delete node;
}

size_t Queue::poll(bp_update *updates, size_t most) {
    // Their content may be large: it is freed without the lock.
    for (Node *node : given_) node->state = State();
    size_t filled = take(most, updates);
    for (Node *node : given_) {
        if (node->squashed != 0) fill_squashed(updates[filled++], *node);
        fill(updates[filled++], *node);
    }
    return filled;
}

// Moves nodes to `given_` while there is room for all that they say. Answers how many updates it has filled itself.
size_t Queue::take(size_t most, bp_update *updates) {
    std::lock_guard<std::mutex> guard(lock_);
    for (Node *node : given_) forget(node);
    given_.clear();
    size_t room = most;
    while (head_ != nullptr && room != 0) {
        Node *node = head_;
        const size_t needs = node->squashed != 0 ? 2 : 1;
        if (needs > room) {
            if (!given_.empty()) break;
            // Room for one: the count now, the update with the next call.
            fill_squashed(updates[0], *node);
            node->squashed = 0;
            return 1;
        }
        room -= needs;
        // The oldest of all is the oldest of its PV.
        unlink_first(*node->line);
        if (node->what == BP_VALUE) node->line->counts.updates += 1;
        given_.push_back(node);
    }
    if (head_ == nullptr) reset();
    return 0;
}

void Queue::remove(Line &line) {
    std::lock_guard<std::mutex> guard(lock_);
    line.gone = true;
    while (line.first != nullptr) {
        Node *node = line.first;
        unlink_first(line);
        forget(node);
    }
}

bp_counts Queue::counted(const Line &line) const {
    std::lock_guard<std::mutex> guard(lock_);
    return line.counts;
}

} // namespace beamport
