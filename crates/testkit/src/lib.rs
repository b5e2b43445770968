//! Pretend clock and disk, fault injection; development only.
