//! `hs00`: a histogram of events, the predecessor of `hs01`; whole numbers are unsigned.

crate::histogram::histogram!(b"hs00", u32, u64, [DType::UInt32, DType::UInt64, DType::Float64, DType::Float32]);
