//! The beamport command.

fn main() -> std::process::ExitCode {
    beamport::run(&beamport::Registry::builtin())
}
