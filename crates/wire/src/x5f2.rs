//! `x5f2`: a service says that it lives, and how it does.

message!(b"x5f2", X5f2);

table! {
    /// A sign of life.
    pub struct X5f2<'a> {
        /// Name of the program.
        0 software_name: &'a str;
        /// Its version.
        1 software_version: &'a str;
        /// Which one of those that run.
        2 service_id: &'a str;
        /// Machine it runs on.
        3 host_name: &'a str;
        /// Its process there.
        4 process_id: u32;
        /// When the next sign is due, ms.
        5 update_interval: u32;
        /// How it does, JSON.
        6 status_json: &'a str;
    }
}
