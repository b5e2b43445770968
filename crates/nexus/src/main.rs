//! The program `beamport-nexus`: what it does is [`beamport_nexus::program`], with no modules but ours.

fn main() -> std::process::ExitCode {
    beamport_nexus::program(&[])
}
