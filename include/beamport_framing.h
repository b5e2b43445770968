/* A framing of UDP datagrams for beamport, in C.
 *
 *     cc -shared -fPIC -O2 -I include -o libmine.so mine.c
 *
 * and in the instrument file of a source of kind `udp`: framing = "libmine.so". docs/how-to/add-a-framing.md
 */
#ifndef BEAMPORT_FRAMING_H
#define BEAMPORT_FRAMING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. */
#define BEAMPORT_FRAMING_VERSION 1

/* What `time` of a message is. */
enum {
    BEAMPORT_ARRIVAL = 0, /* nothing: the time of arrival */
    BEAMPORT_EPOCH = 1,   /* ns since 1970 UTC */
    BEAMPORT_TICKS = 2    /* ticks: `tick` and `zero` of the source say which */
};

/* What `beamport_framing_cut` answers for a datagram that it refuses. */
enum {
    BEAMPORT_FOREIGN = -1, /* it is no datagram of this framing: counted as refused.foreign */
    BEAMPORT_DAMAGED = -2  /* it was one: counted as refused.damaged, and explains a missing number */
};

/* A message in a datagram. */
typedef struct beamport_cut {
    uint64_t number;    /* as the board shows it */
    uint64_t time;
    uint32_t first;     /* the payload: first byte, and how many */
    uint32_t length;
    uint32_t origin;    /* which of several boards at the port; 0 if there is one */
    char schema[4];     /* schema id, four letters or digits */
    uint8_t has_number; /* 0: messages are counted on arrival, and losses are not known */
    uint8_t time_kind;
    uint8_t is_suspect; /* the board says that the data are suspect */
    uint8_t tag;        /* bits 8 to 15 of the flags of the message */
} beamport_cut;

/* Writes the messages of a datagram into `cuts`, at most `most` of them, in the order of their payloads; answers how
 * many, or why it refuses the datagram. It is called by one thread, keeps no pointer, and does not wait. */
int beamport_framing_cut(const uint8_t *bytes, size_t length, beamport_cut *cuts, size_t most);

/* Numbers begin again from 0 here; 0: never. A library without this function: never. */
uint64_t beamport_framing_wrap(void);

/* BEAMPORT_FRAMING_VERSION. */
int beamport_framing_version(void);

#ifdef __cplusplus
}
#endif

#endif
