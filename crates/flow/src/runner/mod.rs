//! What moves messages: intake, merge, relay, feed and workers.

pub(crate) mod append;
pub(crate) mod feed;
pub(crate) mod intake;
pub(crate) mod merge;
pub(crate) mod native;
pub(crate) mod relay;
pub(crate) mod work;
