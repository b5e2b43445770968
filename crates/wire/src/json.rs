//! `json`: text that is JSON.

message!(b"json", JsonData);

table! {
    /// Some JSON.
    pub struct JsonData<'a> {
        /// The text; whether it is JSON is not looked at.
        0 json: &'a str;
    }
}
