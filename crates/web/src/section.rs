//! `[web]` of an instrument file: the keys, and what they say.

use crate::limits::BACKLOG;
use settings::{Key, Refused, Section, Setting, key};
use socket2::{Domain, Socket, Type};
use std::net::{SocketAddr, TcpListener};

static LISTEN: Key = key(
    "listen",
    "address and port",
    "127.0.0.1:8642",
    "Where the page is served; with port 0 the system chooses one. Only this machine reaches 127.0.0.1.",
);
static INSECURE: Key = key(
    "insecure",
    "true or false",
    "false",
    "Allows an address that other machines reach. Tokens and data then cross the network unencrypted.",
);
static OPEN: Key = key("open", "true or false", "false", "The page can be viewed without a token.");

/// Its keys, in the order of the reference page.
pub static KEYS: [&Key; 3] = [&LISTEN, &INSECURE, &OPEN];

/// The plan of the section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where the page is served.
    pub listen: SocketAddr,
    /// Viewing needs no token.
    pub open: bool,
}

/// Reads the section and notes every mistake; `None` where nothing can be served.
pub fn read(section: &mut Section<'_>) -> Option<Plan> {
    let listen: Option<Setting<String>> = section.get(&LISTEN);
    let insecure: bool = section.get(&INSECURE).is_some_and(|insecure: Setting<bool>| *insecure);
    let open: bool = section.get(&OPEN).is_some_and(|open: Setting<bool>| *open);
    match address(&listen?, insecure) {
        Ok(listen) => Some(Plan { listen, open }),
        Err(refused) => {
            section.refuse(&LISTEN, refused);
            None
        }
    }
}

impl Plan {
    /// The same from the command line.
    pub fn new(listen: &str, insecure: bool, open: bool) -> Result<Self, flow::Fault> {
        let fault = |refused: Refused| {
            flow::Fault::new(format!("the page cannot be served at `{listen}`"), refused.cause).hint(refused.hint)
        };
        Ok(Self { listen: address(listen, insecure).map_err(fault)?, open })
    }

    /// Listens at the address.
    pub fn bind(&self) -> Result<TcpListener, flow::Fault> {
        let listen = || {
            let socket = Socket::new(Domain::for_address(self.listen), Type::STREAM, None)?;
            // An address of connections that have ended is free.
            socket.set_reuse_address(true)?;
            socket.bind(&self.listen.into())?;
            // The standard library has room for 128.
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        };
        listen().map_err(|e: std::io::Error| {
            flow::Fault::io(format!("the page cannot be served at {}", self.listen), &e)
                .hint("choose another port: `listen` in [web], or `--listen 127.0.0.1:0`")
        })
    }
}

fn address(text: &str, insecure: bool) -> Result<SocketAddr, Refused> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| Refused::new("not an address with a port", "write it like `127.0.0.1:8642` or `[::1]:8642`"))?;
    if !address.ip().is_loopback() && !insecure {
        return Err(Refused::new(
            "other machines can reach this address, and the connection is not encrypted",
            "listen on 127.0.0.1 and use `ssh -L 8642:127.0.0.1:8642 HOST`, or add `insecure = true`",
        ));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_reach_needs_a_word() {
        assert!(address("127.0.0.1:0", false).is_ok());
        assert!(address("[::1]:8642", false).is_ok());
        let refused = address("0.0.0.0:8642", false).unwrap_err();
        assert!(refused.hint.contains("insecure"), "{}", refused.hint);
        assert!(address("0.0.0.0:8642", true).is_ok());
        assert!(address("localhost", true).unwrap_err().hint.contains("127.0.0.1:8642"));
    }
}
