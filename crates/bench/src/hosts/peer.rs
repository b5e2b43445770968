//! The bare peer of hosts that HTTPS joins: TLS by the same library over TCP, from memory to memory, and a round trip
//! of TCP. Each side is a thread that does nothing else.

use super::super::limit::Pages;
use super::super::measure::thread_cpu_seconds;
use super::super::place::{output, wrong};
use super::{Delays, RECORD, RING_MIB, SIZE};
use flow::Fault;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

/// Makes a key, as the page on several machines does.
const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/// Makes certificates of `a` and `b`, and of the authority that has signed them.
pub(super) fn certify(folder: &Path) -> Result<(), Fault> {
    let openssl = |words: &[&[&str]]| output(Command::new("openssl").args(words.concat()).current_dir(folder));
    let days = ["-days", "3"];
    openssl(&[&["req", "-x509", "-keyout", "lab.key", "-out", "lab.pem", "-subj", "/CN=lab"], &KEY, &days])?;
    for host in ["a", "b"] {
        let [key, asked, signed] = ["key", "csr", "pem"].map(|kind| format!("{host}.{kind}"));
        let names = format!("subjectAltName=DNS:{host},DNS:localhost,IP:127.0.0.1");
        let subject = format!("/CN={host}");
        openssl(&[&["req", "-keyout", &key, "-out", &asked, "-subj", &subject, "-addext", &names], &KEY])?;
        let by = ["-CA", "lab.pem", "-CAkey", "lab.key", "-copy_extensions", "copy"];
        openssl(&[&["x509", "-req", "-in", &asked, "-out", &signed], &by, &days])?;
    }
    Ok(())
}

/// The certificates and the key of a side.
struct Identity {
    roots: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn read(folder: &Path, host: &str) -> Result<Self, Fault> {
        let (mut roots, file) = (RootCertStore::empty(), |name: String| -> PathBuf { folder.join(name) });
        let certificate = |name: String| CertificateDer::from_pem_file(file(name)).map_err(wrong("a certificate"));
        roots.add(certificate("lab.pem".into())?).map_err(wrong("a certificate"))?;
        let key = PrivateKeyDer::from_pem_file(file(format!("{host}.key"))).map_err(wrong("a key"))?;
        Ok(Self { roots, chain: vec![certificate(format!("{host}.pem"))?], key })
    }
}

/// The library, its ciphers, and version 1.3 alone, as the carrier has them.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

fn server(folder: &Path) -> Result<ServerConfig, rustls::Error> {
    let Identity { roots, chain, key } = Identity::read(folder, "a").map_err(|e| rustls::Error::General(e.cause))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let verifier = verifier.map_err(|e| rustls::Error::General(e.to_string()))?;
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(VERSIONS)?;
    builder.with_client_cert_verifier(verifier).with_single_cert(chain, key)
}

fn client(folder: &Path) -> Result<ClientConfig, rustls::Error> {
    let Identity { roots, chain, key } = Identity::read(folder, "b").map_err(|e| rustls::Error::General(e.cause))?;
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(VERSIONS)?;
    builder.with_root_certificates(roots).with_client_auth_cert(chain, key)
}

/// The cost of a transfer: seconds, processor seconds of the sender and of the receiver, and the cipher.
pub(super) struct Moved {
    pub(super) seconds: f64,
    pub(super) off: f64,
    pub(super) on: f64,
    pub(super) cipher: String,
}

/// Sends messages from memory larger than the caches in writes of [`RECORD`], by the side that is the server. The other
/// one reads each into a ring as large as the mirror, and sums it.
pub(super) fn moved(folder: &Path, count: u64) -> Result<Moved, Fault> {
    let pages = Pages::filled((count * SIZE) as usize).map_err(wrong("memory for the bare peer"))?;
    let bytes = pages.bytes();
    let mut ring = vec![1; (RING_MIB as usize) << 20];
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(wrong("the bare peer"))?;
    let address = listener.local_addr().map_err(wrong("the bare peer"))?;
    let (server, client) = (server(folder).map_err(wrong("TLS"))?, client(folder).map_err(wrong("TLS"))?);
    let send = || -> std::io::Result<f64> {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let tls = ServerConnection::new(Arc::new(server)).map_err(std::io::Error::other)?;
        let mut line = StreamOwned::new(tls, stream);
        line.flush()?;
        let before = thread_cpu_seconds();
        bytes.chunks(RECORD as usize).try_for_each(|piece| line.write_all(piece))?;
        line.flush()?;
        let cpu = thread_cpu_seconds() - before;
        // It waits until the other side has all.
        line.read_exact(&mut [0])?;
        Ok(cpu)
    };
    let receive = || -> std::io::Result<(f64, f64, String, u32)> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").map_err(std::io::Error::other)?;
        let tls = ClientConnection::new(Arc::new(client), name).map_err(std::io::Error::other)?;
        let mut line = StreamOwned::new(tls, stream);
        line.conn.complete_io(&mut line.sock)?;
        let (begin, before, mut at, mut sum) = (Instant::now(), thread_cpu_seconds(), 0, 0);
        for _ in 0..count {
            if at + SIZE as usize > ring.len() {
                at = 0;
            }
            let place = &mut ring[at..at + SIZE as usize];
            line.read_exact(place)?;
            sum ^= store::crc32c(place);
            at = (at + SIZE as usize).next_multiple_of(64);
        }
        let (seconds, cpu) = (begin.elapsed().as_secs_f64(), thread_cpu_seconds() - before);
        line.write_all(&[1])?;
        line.flush()?;
        let cipher = line.conn.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
        Ok((seconds, cpu, cipher.unwrap_or_default(), sum))
    };
    let (sent, received) = std::thread::scope(|threads| {
        let sender = threads.spawn(send);
        let received = receive();
        (sender.join(), received)
    });
    let off = sent.map_err(|_| Fault::new("bench: the bare peer has died", ""))?.map_err(wrong("the bare peer"))?;
    let (seconds, on, cipher, sum) = received.map_err(wrong("the bare peer"))?;
    let expected = bytes.chunks(SIZE as usize).fold(0, |sum, message| sum ^ store::crc32c(message));
    if sum != expected {
        return Err(Fault::new("bench: the bare peer has received other bytes", sum));
    }
    Ok(Moved { seconds, off, on, cipher })
}

/// Round trips of a message over TCP, without TLS: another thread sends it back.
pub(super) fn round_trips(timed: (usize, usize)) -> Result<Delays, Fault> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(wrong("a round trip"))?;
    let address = listener.local_addr().map_err(wrong("a round trip"))?;
    let echo = || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut message = vec![0; SIZE as usize];
        while stream.read_exact(&mut message).is_ok() {
            stream.write_all(&message)?;
        }
        Ok(())
    };
    std::thread::scope(|threads| {
        threads.spawn(echo);
        let mut stream = TcpStream::connect(address).map_err(wrong("a round trip"))?;
        stream.set_nodelay(true).map_err(wrong("a round trip"))?;
        let (payload, mut back) = (vec![7; SIZE as usize], vec![0; SIZE as usize]);
        Delays::measure(timed, |_| {
            let begin = Instant::now();
            let done = stream.write_all(&payload).and_then(|()| stream.read_exact(&mut back));
            done.map(|()| begin.elapsed()).map_err(wrong("a round trip"))
        })
    })
}
