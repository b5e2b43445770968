//! The child process that holds libhdf5. Nothing else of beamport links it.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("--version") => {
            let (major, minor, release) = hdf5_metno::library_version();
            println!(
                "beamport-nexus {} (HDF5 {major}.{minor}.{release})",
                env!("CARGO_PKG_VERSION")
            );
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: beamport-nexus --version");
            ExitCode::from(2)
        }
    }
}
