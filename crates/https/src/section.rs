//! The keys of the carrier in `[host.NAME]`: where a host is reached, and how the two sides of a connection prove who
//! they are.
//!
//! Constraint: a secret never comes into an error, a log or what `check --show` prints; the instrument file has only
//! the place of it.

use flow::Fault;
use serde_json::{Map, Value as Json};
use settings::{Key, Refused, Section, Setting, key};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

static URL: Key = key(
    "url",
    "`https://NAME:PORT`",
    "",
    "Where other hosts reach this one. A host whose streams others read needs it, and so does the first host.",
);
static LISTEN: Key = key(
    "listen",
    "address and port",
    "",
    "Where the host listens. Default: the port of `url` on all addresses, or on the loopback where `url` names that.",
);
static TLS: Key = key(
    "tls",
    "table of `certificate`, `key`, `authority`",
    "",
    "Files with PEM: the certificates of this host, its private key, and the authority that has signed those of all \
     hosts.",
);
static TOKEN: Key = key(
    "token",
    "`file:PATH` or `env:NAME`",
    "",
    "A secret that other hosts show to this one in the place of certificates of their own.",
);
static INSECURE: Key = key(
    "insecure",
    "true or false",
    "false",
    "Allows a `url` with `http` that other machines reach. Data and tokens then cross the network unencrypted.",
);

/// The keys, in the order of the reference page.
pub(crate) static KEYS: [&Key; 5] = [&URL, &LISTEN, &TLS, &TOKEN, &INSECURE];

static CERTIFICATE: Key = key("certificate", "path", "", "The certificate of the host.");
static PRIVATE_KEY: Key = key("key", "path", "", "Its private key.");
static AUTHORITY: Key = key("authority", "path", "", "The authority that has signed all certificates.");

/// Where a host is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// With TLS.
    pub(crate) is_secure: bool,
    /// A name or an address.
    pub(crate) host: String,
    /// TCP.
    pub(crate) port: u16,
}

impl Url {
    fn read(text: &str) -> Result<Self, Refused> {
        let form = || Refused::new("it is no address of a host", "write it like `https://daq.example.org:9400`");
        let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
        let is_secure = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(form()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or_else(form)?;
        let port: u16 = port.parse().ok().filter(|port| *port > 0).ok_or_else(form)?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        let is_right = match inner {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.chars().all(is_name),
        };
        if !is_right {
            return Err(form());
        }
        Ok(Self { is_secure, host: inner.unwrap_or(host).to_owned(), port })
    }

    /// Only this machine reaches it.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// As in the file.
    pub(crate) fn text(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// Host and port, as the head `host` has them.
    pub(crate) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    /// In a variable of the environment.
    Env(String),
    /// In a file, whose last line end does not count.
    File(PathBuf),
}

impl Secret {
    fn read(text: &str, section: &Section<'_>) -> Result<Self, Refused> {
        match (text.strip_prefix("env:"), text.strip_prefix("file:")) {
            (Some(name), _) if !name.is_empty() && !name.contains(['=', '\0']) => Ok(Self::Env(name.to_owned())),
            (_, Some(path)) if !path.is_empty() => Ok(Self::File(section.folder.join(path))),
            (None, None) => Err(Refused::new(
                "it is a secret, and instrument files are shown and kept",
                "write \"file:PATH\" with a file that only you can read, or \"env:NAME\"",
            )),
            _ => Err(Refused::new("nothing stands behind the colon", "write \"file:PATH\" or \"env:NAME\"")),
        }
    }

    /// The secret. `host`: whose it is.
    pub(crate) fn resolve(&self, host: &str) -> Result<String, Fault> {
        let what = || format!("the token of host `{host}` cannot be read");
        let text = match self {
            Self::Env(name) => {
                std::env::var(name).map_err(|e| Fault::new(what(), format!("environment variable `{name}`: {e}")))?
            }
            Self::File(path) => std::fs::read_to_string(path)
                .map_err(|e| Fault::io(what(), &e))
                .map_err(|fault| Fault { cause: format!("{}: {}", path.display(), fault.cause), ..fault })?,
        };
        let text = text.trim_end();
        let is_right = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        match is_right {
            true => Ok(text.to_owned()),
            false => Err(Fault::new(what(), "it is empty, or has other characters than letters, digits and signs")
                .hint("make one: `openssl rand -hex 32`")),
        }
    }
}

/// Files of a host for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Its certificate, with those between it and the authority.
    pub(crate) certificate: Option<PathBuf>,
    /// Its private key.
    pub(crate) key: Option<PathBuf>,
    /// The authority of all hosts.
    pub(crate) authority: Option<PathBuf>,
}

/// The keys of this carrier in `[host.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPlan {
    /// Name of the host.
    pub(crate) name: String,
    /// Where it is reached.
    pub(crate) url: Option<Url>,
    /// Where it listens, unless that follows from `url`.
    pub(crate) listen: Option<SocketAddr>,
    /// Its files for TLS.
    pub(crate) tls: TlsFiles,
    /// The secret that others show to it.
    pub(crate) token: Option<Secret>,
}

impl HostPlan {
    /// A certificate and a key are named.
    pub(crate) fn has_certificate(&self) -> bool {
        self.tls.certificate.is_some() && self.tls.key.is_some()
    }
}

/// Reads the keys, and notes every mistake.
pub(crate) fn read(name: &str, section: &mut Section<'_>) -> HostPlan {
    let insecure: Setting<bool> = section.need(&INSECURE);
    let url = section.read(&URL, |text: &String| {
        let url = Url::read(text)?;
        if !url.is_secure && !url.is_loopback() && !insecure.value {
            let hint = "write `https://`, or add `insecure = true` where nobody else reaches the cable";
            return Err(Refused::new("messages and tokens would cross the network unencrypted", hint));
        }
        Ok(url)
    });
    let listen = section.read(&LISTEN, |text: &String| {
        let form = |_| Refused::new("not an address with a port", "write it like `0.0.0.0:9400` or `[::]:9400`");
        text.parse::<SocketAddr>().map_err(form)
    });
    let table: Option<Setting<Map<String, Json>>> = section.get(&TLS);
    let tls = match table.is_some() {
        true => section.table(TLS.name, read_tls),
        false => TlsFiles::default(),
    };
    let token: Option<Setting<String>> = section.get(&TOKEN);
    let token = token.and_then(|text| match Secret::read(&text, section) {
        Ok(secret) => Some(secret),
        Err(refused) => {
            section.refuse(&TOKEN, refused);
            None
        }
    });
    let plan = HostPlan { name: name.to_owned(), url, listen, tls, token };
    if plan.url.as_ref().is_some_and(|url| url.is_secure) && !plan.has_certificate() {
        let line = section.line_of(URL.name);
        let hint = "add `tls = { certificate = \"NAME.pem\", key = \"NAME.key\", authority = \"lab.pem\" }`";
        section.mistake(line, format!("`url` of host `{name}` has https, and the host no certificate"), "", hint);
    }
    plan
}

fn read_tls(table: &mut Section<'_>) -> TlsFiles {
    let mut path = |key: &'static Key| table.path(key).map(|path| path.value);
    let tls = TlsFiles { certificate: path(&CERTIFICATE), key: path(&PRIVATE_KEY), authority: path(&AUTHORITY) };
    let wrong = match &tls {
        TlsFiles { authority: None, .. } => Some("add `authority = \"lab.pem\"`: it proves the other side"),
        TlsFiles { certificate: Some(_), key: None, .. } => Some("add `key = \"NAME.key\"`"),
        TlsFiles { certificate: None, key: Some(_), .. } => Some("add `certificate = \"NAME.pem\"`"),
        _ => None,
    };
    table.end();
    if let Some(hint) = wrong {
        let (line, what) = (table.line, format!("a file is missing in {}", table.title));
        table.mistake(line, what, "", hint);
    }
    tls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_a_host_and_a_port() {
        let url = Url::read("https://daq.example.org:9400/").unwrap();
        assert_eq!((url.is_secure, url.host.as_str(), url.port), (true, "daq.example.org", 9400));
        assert_eq!(Url::read("http://[::1]:80").unwrap().text(), "http://[::1]:80");
        assert!(Url::read("http://[::1]:80").unwrap().is_loopback());
        assert!(Url::read("http://127.0.0.7:80").unwrap().is_loopback());
        assert!(!Url::read("http://10.0.0.1:80").unwrap().is_loopback());
        for wrong in ["", "daq:1", "ftp://daq:1", "https://daq", "https://daq:0", "https://:1", "https://a/b:1"] {
            assert!(Url::read(wrong).is_err(), "{wrong}");
        }
        for wrong in ["https://daq:1/path", "https://a b:1", "https://[::g]:1", "https://x@y:1", "https://daq:99999"] {
            assert!(Url::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_of_a_file_loses_its_line_end_and_one_with_spaces_is_refused() {
        let path = std::env::temp_dir().join(format!("beamport-token-{}", std::process::id()));
        for (text, read) in [("abc\r\n", Some("abc")), ("", None), ("a b", None), ("a\nb", None)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Secret::File(path.clone()).resolve("daq").ok().as_deref(), read, "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
        let fault = Secret::File(path).resolve("daq").unwrap_err();
        assert!(fault.cause.contains("beamport-token"), "{fault}");
    }
}
