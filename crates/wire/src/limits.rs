//! Limits on what a buffer may ask of its reader, each with its reason.

/// Largest message in bytes. FlatBuffers counts table distances in signed 32 bits.
pub const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// Smallest message in bytes: root offset, identifier, an empty vtable and an empty table.
pub const MESSAGE_BYTES_MIN: usize = 16;

/// Entries of one vector of tables or strings. A commit that lists every gap of a bad day stays below;
/// larger ones are data and belong into numeric vectors.
pub const LIST_LENGTH_MAX: usize = 65_536;

/// Dimensions of a frame: what HDF5 and older numpy can hold; areaDetector has 10.
pub const DIMENSIONS_MAX: usize = 32;

/// Nesting of tables. Our deepest message is `bpcm`: commit, input, count. Two are spare for appended fields.
pub const DEPTH_MAX: u8 = 5;

/// Bytes that the reader may visit or allocate, per byte of the buffer. FlatBuffers may refer to the same table
/// or string from many places (writers share vtables and equal strings); without a bound a few kilobytes could
/// ask for hours of work and gigabytes of lists. Honest messages need 1 to 4.
pub const VISITS_PER_BYTE_MAX: u64 = 16;

/// Values of an array shown by `to_json` before it is abbreviated: a line of a terminal.
pub const JSON_VALUES_MAX: usize = 8;

/// Bytes of the header of a datagram: a cache line.
pub const HEADER_BYTES: usize = 64;

/// Bytes of that header that its checksum covers: those before it.
pub const HEADER_CHECKED_BYTES: usize = 44;

/// Bytes of a block of bit planes where nothing says another size, as the library bitshuffle has it.
pub const BLOCK_BYTES: usize = 8 << 10;

/// Smallest size of such a block, elements; the library's own bound.
pub const BLOCK_ELEMENTS_MIN: usize = 128;
