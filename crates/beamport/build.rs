//! Where the program finds librdkafka: in `lib/beamport` beside the folder that it is in, for `bin` of an environment
//! as for `release` in cargo's target folder. A program that has it inside does not look.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_KAFKA").is_some() {
        println!("cargo:rustc-link-arg-bins=-Wl,-rpath,$ORIGIN/../lib/beamport");
    }
}
