/* The C interface of the EPICS shim: pvAccess through PVXS, Channel Access through libca.
 *
 * Threads: PVXS and libca call the shim on threads of their own, which copy each update into the client's queue and
 * signal its descriptor. All functions below are called from one thread. No exception leaves the shim, and it keeps
 * no pointer that it was given after a function has returned. libca reads addresses from the environment alone: where
 * `addresses` or `name_servers` of a client of Channel Access are given, bp_open and the first bp_add or bp_put set
 * them there for a moment.
 */
#ifndef BEAMPORT_EPICS_H
#define BEAMPORT_EPICS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changed with each change of this file; the caller compares it with its own. */
#define BP_ABI 3

typedef struct bp_client bp_client;

enum { BP_PVA = 0, BP_CA = 1 };

/* Settings of a client. Strings end with NUL; a null pointer takes the value of the EPICS environment. */
typedef struct {
    uint32_t protocol;        /* BP_PVA or BP_CA */
    const char *addresses;    /* as EPICS_PVA_ADDR_LIST or EPICS_CA_ADDR_LIST; with it the automatic list is off */
    const char *name_servers; /* as EPICS_PVA_NAME_SERVERS or EPICS_CA_NAME_SERVERS */
    uint64_t queue_bytes;     /* most bytes of updates that wait for bp_poll, over all PVs; above it BP_SQUASHED */
} bp_settings;

/* What an update reports. */
enum {
    BP_CONNECTED = 0,    /* the channel is connected; `text` is the address of the server */
    BP_DISCONNECTED = 1, /* the channel has lost its server */
    BP_VALUE = 2,        /* a value or a change of alarm */
    BP_REFUSED = 3,      /* the server refused the channel or its data cannot be taken: `text` says why */
    BP_SQUASHED = 4,     /* `count` updates of this PV were overwritten here, before the update that follows */
    BP_FINISHED = 5,     /* the server ended the subscription */
    BP_WRITTEN = 6       /* the answer to bp_put_start: `status` is BP_PUT_..., `text` says why it failed */
};

/* How a write has ended. */
enum {
    BP_PUT_DONE = 0,
    BP_PUT_REFUSED = 1,   /* the server refused it, or the PV cannot take the value */
    BP_PUT_NO_SERVER = 2, /* no server has the PV, or the connection was lost: not written, or unknown */
    BP_PUT_NO_ANSWER = 3  /* sent, and not answered in time: unknown whether it was written */
};

/* Element types of a value, with the sizes of C. Booleans are u8 of 0 and 1. */
enum {
    BP_NONE = 0, BP_I8 = 1, BP_I16 = 2, BP_I32 = 3, BP_I64 = 4, BP_U8 = 5, BP_U16 = 6, BP_U32 = 7, BP_U64 = 8,
    BP_F32 = 9, BP_F64 = 10,
    BP_STRING = 11 /* `data` holds `count` strings, each with a u32 length (host order) before its bytes */
};

/* The form of a value. */
enum {
    BP_SCALAR = 0,
    BP_ARRAY = 1,
    BP_ENUM = 2,    /* the index as BP_I32, one element; `text` is its choice */
    BP_TABLE = 3,   /* NTTable with columns `value` and `timestamp` of numbers: `columns` */
    BP_IMAGE = 4,   /* NTNDArray: `value`, `dims`, `attributes`, `unique_id`, `data_seconds` */
    BP_OTHER = 5    /* another structure, table or union: `value.data` is the type and the value in PVA's own encoding, LE */
};

/* Elements of one type. */
typedef struct {
    uint32_t type;    /* BP_I8... */
    uint32_t reserved;
    uint64_t count;   /* elements */
    const void *data; /* host order, aligned to 8 B */
    uint64_t bytes;   /* of `data` */
} bp_elements;

/* A text that need not end with NUL. */
typedef struct {
    const char *data;
    uint64_t bytes;
} bp_text;

/* A column of a table (`name` is its label, `source` its field), or an attribute of an image. A structure as an
 * attribute is several: NAME is its field `value`, NAME.FIELD another one. */
typedef struct {
    bp_text name;
    bp_text description; /* attribute */
    bp_text source;      /* attribute */
    bp_elements values;
} bp_named;

/* Groups of fields that an update carries or has changed, as bits of `changed`. The first update has them all. */
enum { BP_CHANGED_VALUE = 1, BP_CHANGED_ALARM = 2, BP_CHANGED_TIME = 4, BP_CHANGED_UNITS = 8 };

/* One update. Its pointers are valid until the next call of bp_poll or bp_close. */
typedef struct {
    uint64_t id;             /* of bp_add */
    uint32_t what;           /* BP_CONNECTED... */
    uint32_t form;           /* BP_SCALAR... */
    uint64_t count;          /* BP_SQUASHED: updates overwritten here; BP_IMAGE: as bp_counts.server_squash */
    int64_t seconds;         /* time stamp of the PV, since 1970 (UTC); 0 where it has none */
    uint32_t nanoseconds;
    int32_t user_tag;        /* of the PV; BP_WRITTEN: of bp_put_start */
    uint32_t changed;        /* BP_CHANGED_... */
    int16_t severity;        /* 0 none, 1 minor, 2 major, 3 invalid, 4 undefined */
    int16_t status;          /* of the protocol: PVA's alarm status, CA's condition */
    bp_text text;            /* error, address or choice, as `what` and `form` say */
    bp_text alarm;           /* PVA: alarm.message; CA: the name of the condition */
    bp_text units;
    bp_text type_id;         /* PVA: the id of the structure, such as epics:nt/NTScalar:1.0 */
    bp_elements value;
    uint64_t columns_count;
    const bp_named *columns; /* BP_TABLE: columns; BP_IMAGE: attributes */
    uint64_t dims_count;
    const uint64_t *dims;    /* BP_IMAGE: sizes as NTNDArray has them, the fastest first */
    int32_t unique_id;       /* BP_IMAGE */
    int32_t has_unique_id;
    int64_t data_seconds;    /* BP_IMAGE: dataTimeStamp */
    uint32_t data_nanoseconds;
    uint32_t reserved;
    bp_text codec;           /* BP_IMAGE: codec.name, empty without one */
    uint64_t uncompressed;   /* BP_IMAGE: uncompressedSize */
    uint32_t codec_type;     /* BP_IMAGE: element type before the codec, BP_U8 where none is given */
    uint32_t dropped;        /* BP_IMAGE: parts of attributes that are left out: texts and structures in arrays */
} bp_update;

/* How a PV fares; counted since bp_add. */
typedef struct {
    uint64_t updates;       /* given by bp_poll */
    uint64_t client_squash; /* overwritten by this client, exact */
    uint64_t server_squash; /* times that the server reported an overwrite; how many updates it took is unknown */
    uint64_t waiting;       /* in the client's queue now */
} bp_counts;

uint32_t bp_abi(void);
/* Version of the libraries, such as "PVXS 1.5.3, EPICS 7.0.10.99". */
const char *bp_version(void);

/* Null on failure, with the reason in `error` (ends with NUL, at most `size` bytes). Each client has its own context. */
bp_client *bp_open(const bp_settings *settings, char *error, size_t size);
void bp_close(bp_client *client);
/* Becomes readable (poll) when bp_poll has something to give, at most every 2 ms. It may be readable once
 * after all was taken. */
int bp_descriptor(const bp_client *client);

/* Options of a subscription by PVA. */
enum {
    BP_PIPELINE = 1, /* flow control by the server */
    BP_BESIDE = 2    /* alarm, time stamp and units without the value, which of a camera is large */
};

/* Subscribes to a PV under `id`. `queue`: updates of the subscription's queue, asked of client and server; with 0 only
 * the connection is watched. `options` are bits of BP_PIPELINE and BP_BESIDE. A PV that nobody serves is no
 * error: it connects later. */
int bp_add(bp_client *client, uint64_t id, const char *pv, uint32_t queue, uint32_t options, char *error, size_t size);
/* Ends the subscription; no update with its id comes from bp_poll afterwards. */
void bp_remove(bp_client *client, uint64_t id);

/* Takes at most `most` updates, in the order they came for each PV; resets the descriptor when nothing is left. Also
 * subscribes again, 5 s later, what a server has refused or ended: to be called at least every few seconds. */
size_t bp_poll(bp_client *client, bp_update *updates, size_t most);
/* 0 where `id` is unknown. */
int bp_counted(const bp_client *client, uint64_t id, bp_counts *counts);

/* Options of bp_put. */
enum {
    BP_PUT_ARRAY = 1,   /* the value is an array */
    BP_PUT_NO_WAIT = 2  /* do not wait until the record has processed: by CA not for an answer at all */
};

/* Writes a value: `value` has one type, `count` elements. A string is read as the PV's type asks: a number, the name or
 * the index of a choice, or all of an array of characters. A number that the PV's type does not have is refused; so is
 * a text or an array of which the server has kept a part. Waits until the record has processed, at most `timeout_ms`.
 * Returns BP_PUT_..., with the reason in `error`. Opens the channel if it is not subscribed. */
int bp_put(bp_client *client, const char *pv, const bp_elements *value, uint32_t options, uint32_t timeout_ms,
           char *error, size_t size);

/* Begins to write a value to the PV of `id`, which is connected; the answer is the update BP_WRITTEN with this `tag`.
 * Ends an earlier write of the PV, whose answer does not come any more, unless it waits for bp_poll already. Returns
 * BP_PUT_DONE where it has begun, or else BP_PUT_... with the reason in `error`: then no update follows. */
int bp_put_start(bp_client *client, uint64_t id, const bp_elements *value, int is_array, int32_t tag, char *error,
                 size_t size);

#ifdef __cplusplus
}
#endif

#endif
