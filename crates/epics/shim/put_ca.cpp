#include "put_ca.hpp"

#include <algorithm>

#include "ca_context.hpp"
#include "ca_guard.hpp"
#include "client.hpp"
#include "elements.hpp"

namespace beamport {
namespace {

// Channels that are kept for the next value.
const size_t MOST_CHANNELS = 1000;

void send_as(chtype type, chid channel, uint64_t count, const void *data, caEventCallBackFunc *answer, void *number) {
    if (answer == nullptr) {
        need(ca_array_put(type, count, channel, data));
    } else {
        need(ca_array_put_callback(type, count, channel, data, answer, number));
    }
    need(ca_flush_io());
}

std::vector<char> fixed_strings(const std::vector<std::string> &strings) {
    std::vector<char> packed(strings.size() * MAX_STRING_SIZE);
    for (size_t i = 0; i < strings.size(); i++) {
        if (strings[i].size() >= MAX_STRING_SIZE) {
            throw std::length_error("Channel Access takes strings of at most 39 bytes; a longer one goes to NAME$");
        }
        std::copy(strings[i].begin(), strings[i].end(), packed.begin() + static_cast<ptrdiff_t>(i * MAX_STRING_SIZE));
    }
    return packed;
}

} // namespace

void send_put(chid channel, const bp_elements &value, bool is_array, caEventCallBackFunc *answer, void *number_of_write) {
    if (!ca_write_access(channel)) throw std::runtime_error("the server does not let this client write");
    const unsigned long room = ca_element_count(channel);
    const short type = ca_field_type(channel);
    if (is_array && room == 1) throw std::invalid_argument("the PV takes one value, not an array");
    if (is_array && value.count == 0) throw std::invalid_argument("Channel Access cannot write an empty array");
    if (value.count > room) throw std::length_error("the PV has fewer elements than the value");
    if (value.type == BP_STRING) {
        const std::vector<std::string> strings = strings_of(value);
        if (!is_array && room == 1 && type != DBR_STRING && type != DBR_ENUM) {
            // A server would cut off what does not fit.
            const Number number = read_number(strings.at(0), type != DBR_FLOAT && type != DBR_DOUBLE);
            return send_put(channel, number.elements(), false, answer, number_of_write);
        }
        if (is_array || type != DBR_CHAR || room == 1) {
            return send_as(DBR_STRING, channel, strings.size(), fixed_strings(strings).data(), answer, number_of_write);
        }
        const std::string &text = strings.at(0);
        if (text.size() >= room) throw std::length_error("the string is too long for the PV");
        return send_as(DBR_CHAR, channel, text.size() + 1, text.c_str(), answer, number_of_write);
    }
    const auto send_numbers = [&](auto numbers) {
        send_as(type == DBR_STRING ? DBR_DOUBLE : type, channel, numbers.size(), numbers.data(), answer, number_of_write);
    };
    switch (type) {
    case DBR_CHAR:
        // Channel Access does not say whether characters have a sign.
        if (value.type == BP_I8) return send_as(DBR_CHAR, channel, value.count, value.data, answer, number_of_write);
        return send_numbers(numbers_of<dbr_char_t>(value));
    case DBR_SHORT: return send_numbers(numbers_of<dbr_short_t>(value));
    case DBR_LONG: return send_numbers(numbers_of<dbr_long_t>(value));
    case DBR_ENUM: return send_numbers(numbers_of<dbr_enum_t>(value));
    case DBR_FLOAT: return send_numbers(numbers_of<dbr_float_t>(value));
    default: return send_numbers(numbers_of<double>(value));
    }
}

void CaWriter::put(chid to, const bp_elements &value, uint32_t options, uint32_t timeout_ms) {
    const bool is_array = (options & BP_PUT_ARRAY) != 0;
    const Time end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    wait_connected(to, end);
    if ((options & BP_PUT_NO_WAIT) != 0) return send_put(to, value, is_array, nullptr, nullptr);
    uintptr_t number;
    {
        std::lock_guard<std::mutex> guard(lock_);
        number = ++last_;
        answered_ = false;
    }
    Writing answer_comes;
    send_put(to, value, is_array, on_answer, reinterpret_cast<void *>(number));
    std::unique_lock<std::mutex> guard(lock_);
    if (!news_.wait_until(guard, end, [this] { return answered_; })) {
        throw NotWritten(BP_PUT_NO_ANSWER, "no answer in time; it is unknown whether the value was written");
    }
    if (answer_ == ECA_DISCONN) throw NotWritten(BP_PUT_NO_SERVER, "the connection to the server was lost");
    need(answer_);
}

void CaWriter::on_connection(connection_handler_args of) {
    CaWriter *writer = static_cast<CaWriter *>(ca_puser(of.chid));
    std::lock_guard<std::mutex> guard(writer->lock_);
    writer->news_.notify_all();
}

void CaWriter::on_answer(event_handler_args of) {
    CaWriter *writer = static_cast<CaWriter *>(ca_puser(of.chid));
    std::lock_guard<std::mutex> guard(writer->lock_);
    if (reinterpret_cast<uintptr_t>(of.usr) != writer->last_) return;
    writer->answer_ = of.status;
    writer->answered_ = true;
    writer->news_.notify_all();
}

chid CaWriter::channel(const std::string &pv) {
    const auto found = channels_.find(pv);
    if (found != channels_.end()) return found->second;
    if (channels_.size() >= MOST_CHANNELS) {
        const auto oldest = channels_.find(oldest_first_.front());
        ca_clear_channel(oldest->second);
        channels_.erase(oldest);
        oldest_first_.pop_front();
    }
    chid made;
    need(ca_create_channel(pv.c_str(), on_connection, this, CA_PRIORITY_DEFAULT, &made));
    channels_.emplace(pv, made);
    oldest_first_.push_back(pv);
    return made;
}

void CaWriter::wait_connected(chid channel, Time end) {
    std::unique_lock<std::mutex> guard(lock_);
    // Asked without the lock: libca has its own, and holds it when it calls `on_connection`.
    const auto connected = [&] {
        guard.unlock();
        const bool is = ca_state(channel) == cs_conn;
        guard.lock();
        return is;
    };
    while (!connected()) {
        const Time now = std::chrono::steady_clock::now();
        if (now >= end) throw NotWritten(BP_PUT_NO_SERVER, "no server has this PV");
        // A change just before this wait is seen with the next turn.
        news_.wait_until(guard, std::min(end, now + std::chrono::milliseconds(50)));
    }
}

} // namespace beamport
