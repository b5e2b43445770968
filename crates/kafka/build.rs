//! Where tests find librdkafka: in `lib/beamport` of cargo's target folder.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_CLIENT").is_some() {
        println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../../lib/beamport");
    }
}
