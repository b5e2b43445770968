//! Which requests are let in: by their host, their origin and their token.
//!
//! A page of another site may send requests to this server from the user's browser. It cannot know a token, and is
//! refused by `Origin`. A name of another site that leads to this address is refused by `Host`.

use crate::tokens::{Role, Tokens};
use flow::Fault;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use hyper::{Method, StatusCode};
use std::net::IpAddr;

/// The names and tokens that admit a request.
#[derive(Clone, Debug)]
pub(crate) struct Doors {
    pub(crate) tokens: Tokens,
    /// Viewing needs no token.
    pub(crate) open: bool,
    /// Names of this machine, in small letters.
    pub(crate) names: Vec<String>,
}

/// A refusal.
pub(crate) type Refusal = (StatusCode, Fault);

impl Doors {
    /// Refuses requests that were made for another site, or by one.
    pub(crate) fn guard(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let refuse = |what, cause: String| {
            let hint = "open the URL that `beamport up` prints";
            Err((StatusCode::FORBIDDEN, Fault::new(what, cause).hint(hint)))
        };
        let Some(host) = text(HOST) else { return refuse("the request has no header `Host`", String::new()) };
        if !self.is_here(host) {
            let cause = format!("its header `Host` is `{}`", host.escape_debug());
            return refuse("the request is for another host", cause);
        }
        match text(ORIGIN) {
            Some(origin) if method != Method::GET && origin.strip_prefix("http://") != Some(host) => {
                refuse("the request comes from another page", format!("its origin is `{}`", origin.escape_debug()))
            }
            _ => Ok(()),
        }
    }

    /// The role of a request; where it is less than `needed`, a refusal.
    pub(crate) fn admit(&self, headers: &HeaderMap, needed: Role) -> Result<Role, Refusal> {
        let refuse = |cause| {
            let hint = "open the URL that `beamport up` prints, or send `Authorization: Bearer TOKEN` with the token \
                        in `web.view.token` of the data folder";
            Err((StatusCode::UNAUTHORIZED, Fault::new("the request needs a token", cause).hint(hint)))
        };
        let given = headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
        let role = match given.map(|text| self.tokens.role(text.strip_prefix("Bearer ").unwrap_or_default().trim())) {
            None if self.open => Role::View,
            None => return refuse("it has none"),
            Some(None) => return refuse("its token is not one of this data folder"),
            Some(Some(role)) => role,
        };
        if role < needed {
            let cause = "its token allows to view only";
            let hint = "use the token in `web.control.token` of the data folder";
            return Err((StatusCode::FORBIDDEN, Fault::new("the request needs another token", cause).hint(hint)));
        }
        Ok(role)
    }

    fn is_here(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => host,
        };
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let is_name = || self.names.iter().any(|own| name.eq_ignore_ascii_case(own));
        bare.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || is_name()
    }
}

/// Names of a machine: its host name, and the same in each domain of `/etc/resolv.conf`. Not in any domain: anybody can
/// have one with such a name in it.
pub(crate) fn names(hostname: &str, resolver: &str) -> Vec<String> {
    let host = hostname.trim().to_lowercase();
    let Some(short) = host.split('.').next().filter(|short| !short.is_empty()) else { return Vec::new() };
    let domains = resolver.lines().map(str::split_whitespace).flat_map(|mut words| {
        let has_domains = matches!(words.next(), Some("search" | "domain"));
        words.filter(move |_| has_domains)
    });
    let full = domains.map(|domain| format!("{short}.{}", domain.trim_matches('.').to_lowercase()));
    [host.clone(), short.to_owned()].into_iter().chain(full).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn doors() -> Doors {
        let folder = std::env::temp_dir().join(format!("beamport-doors-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Doors {
            tokens: Tokens::of(&folder).unwrap(),
            open: false,
            names: names("beamline7\n", "nameserver 10.0.0.1\nsearch site.org other.\n"),
        }
    }

    fn headers(list: &[(hyper::header::HeaderName, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn a_name_of_another_site_is_refused() {
        let doors = doors();
        let at = |host: &str| doors.guard(&Method::GET, &headers(&[(HOST, host)])).map_err(|(status, _)| status);
        for host in [
            "127.0.0.1:8642",
            "localhost:1",
            "LOCALHOST",
            "[::1]:8642",
            "beamline7:80",
            "Beamline7.site.org",
            "beamline7.other:1",
        ] {
            assert_eq!(at(host), Ok(()), "{host}");
        }
        let others = ["evil.example", "beamline70:80", "localhost.evil.example", "beamline7.evil.example", "", "[::1"];
        for host in others {
            assert_eq!(at(host), Err(StatusCode::FORBIDDEN), "{host}");
        }
        assert!(doors.guard(&Method::GET, &HeaderMap::new()).is_err());
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let doors = doors();
        let from =
            |origin: &str| doors.guard(&Method::POST, &headers(&[(HOST, "127.0.0.1:8642"), (ORIGIN, origin)])).is_ok();
        assert!(from("http://127.0.0.1:8642"));
        assert!(!from("http://evil.example") && !from("null") && !from("http://127.0.0.1:8643"));
        assert!(doors.guard(&Method::POST, &headers(&[(HOST, "127.0.0.1:8642")])).is_ok());
    }

    #[test]
    fn a_request_needs_a_token_of_its_role() {
        let doors = doors();
        let with = |token: &str| headers(&[(AUTHORIZATION, &format!("Bearer {token}"))]);
        assert_eq!(doors.admit(&with(&doors.tokens.control), Role::Control), Ok(Role::Control));
        let folder = std::env::temp_dir().join(format!("beamport-doors-{}", std::process::id()));
        let view = std::fs::read_to_string(folder.join("web.view.token")).unwrap();
        assert_eq!(doors.admit(&with(view.trim()), Role::View), Ok(Role::View));
        assert_eq!(doors.admit(&with(view.trim()), Role::Control).unwrap_err().0, StatusCode::FORBIDDEN);
        assert_eq!(doors.admit(&HeaderMap::new(), Role::View).unwrap_err().0, StatusCode::UNAUTHORIZED);
        assert_eq!(doors.admit(&with("x"), Role::View).unwrap_err().0, StatusCode::UNAUTHORIZED);
        let open = Doors { open: true, ..doors };
        assert_eq!(open.admit(&HeaderMap::new(), Role::View), Ok(Role::View));
        assert!(open.admit(&HeaderMap::new(), Role::Control).is_err());
        assert!(open.admit(&with("x"), Role::View).is_err());
    }
}
