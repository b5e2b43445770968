//! `hs01`: a histogram of events.

crate::histogram::histogram!(b"hs01", i32, i64, [DType::Int32, DType::Int64, DType::Float64, DType::Float32]);
