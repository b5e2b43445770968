//! TLS 1.3 between hosts: configurations out of the files of a host, whose name a certificate has, and why a connection
//! was refused, in words.
//!
//! Constraints: no other version of TLS; each side checks the other against the authority of the file. A host's
//! certificate has its name in the file among its DNS names, beside the name in its `url`.

use crate::section::HostPlan;
use flow::{Fault, Passes};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, InvalidMessage, PeerIncompatible, RootCertStore, ServerConfig,
};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The configuration of a client of `near`. `own`: the host that it is; none for a monitor.
pub(crate) fn client(own: Option<&HostPlan>, near: &HostPlan) -> Result<ClientConfig, Fault> {
    let authority = own.and_then(|own| own.tls.authority.as_ref()).or(near.tls.authority.as_ref());
    let name = own.map_or(&near.name, |own| &own.name);
    let roots = roots(name, authority)?;
    let wrong = |e: rustls::Error| unusable(name, e);
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(VERSIONS).map_err(wrong)?;
    let builder = builder.with_root_certificates(roots);
    match own.filter(|own| own.has_certificate()) {
        Some(own) => {
            let (chain, key) = identity(own)?;
            builder.with_client_auth_cert(chain, key).map_err(wrong)
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

/// The configuration of the server of a host. Where it has a token, clients may come without a certificate.
pub(crate) fn server(own: &HostPlan) -> Result<ServerConfig, Fault> {
    let roots = Arc::new(roots(&own.name, own.tls.authority.as_ref())?);
    let wrong = |e: rustls::Error| unusable(&own.name, e);
    let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
    if own.token.is_some() {
        verifier = verifier.allow_unauthenticated();
    }
    let verifier = verifier.build().map_err(|e| unusable(&own.name, e))?;
    let (chain, key) = identity(own)?;
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(VERSIONS).map_err(wrong)?;
    builder.with_client_cert_verifier(verifier).with_single_cert(chain, key).map_err(wrong)
}

fn unusable(host: &str, cause: impl std::fmt::Display) -> Fault {
    Fault::new(format!("the certificates of host `{host}` cannot be used"), cause)
        .hint("check the files of `tls`: `openssl verify -CAfile AUTHORITY CERTIFICATE`")
}

/// The fault of a file.
fn unread(host: &str, path: &Path, cause: impl std::fmt::Display) -> Fault {
    let hint = format!("check `tls` of host `{host}` and the file, which begins with `-----BEGIN`");
    let what = format!("a file of `tls` of host `{host}` cannot be read");
    Fault { passes: Passes::Soon, ..Fault::new(what, format!("{}: {cause}", path.display())).hint(hint) }
}

fn certificates(host: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let all = CertificateDer::pem_file_iter(path).map_err(|e| unread(host, path, e))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|e| unread(host, path, e))?;
    if all.is_empty() { Err(unread(host, path, "it has no certificate")) } else { Ok(all) }
}

fn roots(host: &str, path: Option<&PathBuf>) -> Result<RootCertStore, Fault> {
    let path = path.ok_or_else(|| unusable(host, "`authority` is missing in `tls`"))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(host, path)? {
        roots.add(certificate).map_err(|e| unread(host, path, e))?;
    }
    Ok(roots)
}

fn identity(own: &HostPlan) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Fault> {
    let (Some(certificate), Some(key)) = (&own.tls.certificate, &own.tls.key) else {
        return Err(unusable(&own.name, "`certificate` or `key` is missing in `tls`"));
    };
    let chain = certificates(&own.name, certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| unread(&own.name, key, e))?;
    Ok((chain, key))
}

/// The host of a verified certificate, among `hosts`; none where it names none of them.
pub(crate) fn host_of<'a>(certificate: &CertificateDer<'_>, hosts: &'a [String]) -> Option<&'a String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let is_named = |host: &&String| {
        let name = ServerName::try_from(host.as_str());
        name.is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok())
    };
    hosts.iter().find(is_named)
}

/// Whether the other side has ended a connection for a reason of TLS.
pub(crate) fn is_alert(error: &(dyn Error + 'static)) -> bool {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    inner.and_then(|inner| inner.downcast_ref()).is_some_and(|tls| matches!(tls, rustls::Error::AlertReceived(_)))
}

/// The reason why a connection ended, for people. `other`: the other side, as a noun.
pub(crate) fn cause(error: &(dyn Error + 'static), other: &str) -> String {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return of_tls(tls, other);
        }
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof) {
            return "the connection was cut".into();
        }
        if let Some(inner) = io.and_then(io::Error::get_ref) {
            at = Some(inner);
            continue;
        }
        match error.source() {
            Some(source) => at = Some(source),
            None => return error.to_string(),
        }
    }
    error.to_string()
}

fn of_tls(error: &rustls::Error, other: &str) -> String {
    use rustls::Error as Tls;
    match error {
        Tls::InvalidCertificate(wrong) => format!("the certificate of {other} {}", of_certificate(wrong)),
        Tls::NoCertificatesPresented => format!("{other} has shown no certificate"),
        Tls::PeerIncompatible(
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::SupportedVersionsExtensionRequired,
        )
        | Tls::AlertReceived(AlertDescription::ProtocolVersion) => {
            format!("{other} does not speak TLS 1.3, and no earlier version is allowed")
        }
        Tls::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
            format!("{other} does not speak TLS")
        }
        Tls::AlertReceived(alert) => {
            let why = match alert {
                AlertDescription::CertificateExpired => "it has expired, or is not valid yet",
                AlertDescription::UnknownCA => "another authority has signed it",
                AlertDescription::CertificateRequired => "there is none",
                AlertDescription::BadCertificate | AlertDescription::UnsupportedCertificate => "it is wrong",
                AlertDescription::CertificateRevoked => "it was revoked",
                AlertDescription::DecryptError => "another authority has signed it, or its key is another one",
                _ => return format!("{other} has ended the connection: {error}"),
            };
            format!("{other} refuses the certificate of this host: {why}")
        }
        _ => error.to_string(),
    }
}

fn of_certificate(wrong: &CertificateError) -> String {
    match wrong {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "is not valid yet".into(),
        CertificateError::UnknownIssuer => "is signed by another authority".into(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("has another name: {wrong}")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for this purpose (`extendedKeyUsage`)".into()
        }
        CertificateError::BadSignature => "is signed by another authority of the same name".into(),
        _ => format!("is wrong: {wrong}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_found_within_other_errors() {
        let tls = rustls::Error::InvalidCertificate(CertificateError::Expired);
        let io = io::Error::new(io::ErrorKind::InvalidData, tls);
        assert_eq!(cause(&io, "host `daq`"), "the certificate of host `daq` has expired");
        let outer = io::Error::other(io);
        assert_eq!(cause(&outer, "host `daq`"), "the certificate of host `daq` has expired");
        assert_eq!(cause(&io::Error::other("no"), "it"), "no");
        // The text of rustls has the address of a page.
        let cut =
            io::Error::new(io::ErrorKind::UnexpectedEof, "peer closed connection without sending TLS close_notify");
        assert_eq!(cause(&io::Error::other(cut), "it"), "the connection was cut");
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(cause(&refused, "it"), "connection refused");
    }
}
