//! Networks of senders, as `10.1.0.0/16`.

use settings::shortened;
use settings::units::Refused;
use std::net::IpAddr;
use std::str::FromStr;

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    first: IpAddr,
    /// Bits that are alike.
    bits: u32,
}

impl Network {
    /// Whether an address belongs to it.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros() >= self.bits
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros() >= self.bits
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let wrong = || {
            Refused::new(
                format!("`{}` is no network", shortened(text)),
                "write an address, or a network like `\"10.1.0.0/16\"`",
            )
        };
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let first: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| wrong()))?;
        if bits > most { Err(wrong()) } else { Ok(Self { first, bits }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_a_network_by_its_first_bits() {
        let network = |text: &str| text.parse::<Network>();
        let has = |text: &str, address: &str| network(text).unwrap().has(address.parse().unwrap());
        assert!(has("10.1.0.0/16", "10.1.255.3") && !has("10.1.0.0/16", "10.2.0.1"));
        assert!(has("10.1.2.3", "10.1.2.3") && !has("10.1.2.3", "10.1.2.2"));
        assert!(has("0.0.0.0/0", "192.168.0.1") && !has("0.0.0.0/0", "::1"));
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe80::1"));
        for wrong in ["", "10.1.0.0/33", "10.1", "10.1.0.0/-1", "host/8", "::/129"] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }
}
