//! `ns10`: a value in the cache of NICOS.

message!(b"ns10", CacheEntry);

table! {
    /// One value.
    pub struct CacheEntry<'a> {
        /// Its name, as a path: `nicos/device/parameter`.
        0 key: &'a str;
        /// Since when, **seconds** since 1970 UTC.
        1 time: f64;
        /// How long it holds, **seconds**; 0 = for ever.
        2 ttl: f64;
        /// Whether it holds no more.
        3 expired: bool;
        /// The value, as Python writes it.
        4 value: &'a str;
    }
}

impl CacheEntry<'_> {
    /// Since when, ns since 1970 UTC; `None` where the number is not a time.
    pub fn since(&self) -> Option<i64> {
        // Casts saturate: what is out of range is not a time either.
        let nanoseconds = (self.time * 1e9).round() as i64;
        (self.time.is_finite() && nanoseconds.abs_diff(0) < i64::MAX as u64).then_some(nanoseconds)
    }
}
