//! Recorded datagrams: a capture of tcpdump or Wireshark (pcap, pcapng), or a text with the bytes of a datagram in
//! hexadecimal digits in each line.
//!
//! Failure behaviour: a packet that is no UDP datagram, or not all of one, is passed over and counted.

use crate::limits::{CAPTURE_BLOCK_BYTES, HEX_LINE_BYTES};
use etherparse::{EtherType, NetSlice, SlicedPacket, TransportSlice};
use flow::Fault;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};
use std::net::IpAddr;
use std::path::Path;

/// A datagram that was recorded.
pub(crate) struct Recorded<'a> {
    /// Its sender, and the port to which it was sent; none where the file does not say.
    pub(crate) sender: Option<IpAddr>,
    pub(crate) port: Option<u16>,
    pub(crate) bytes: &'a [u8],
}

/// Passes each datagram of a file to `see`, in order; the answer is how many packets are none, or not whole.
pub(crate) fn read(path: &Path, see: &mut dyn FnMut(&Recorded<'_>)) -> Result<u64, Fault> {
    let what = || format!("cannot read datagrams from {}", path.display());
    let io = |error: std::io::Error| Fault::io(what(), &error);
    let mut file = File::open(path).map_err(io)?;
    let mut magic = Vec::new();
    file.by_ref().take(4).read_to_end(&mut magic).map_err(io)?;
    file.rewind().map_err(io)?;
    let is_capture = matches!(
        magic[..],
        [0xa1, 0xb2, 0xc3, 0xd4 | 0x4d]
            | [0xa1, 0xb2, 0x3c, 0x4d]
            | [0xd4, 0xc3, 0xb2, 0xa1]
            | [0x4d, 0x3c, 0xb2, 0xa1]
            | [0x0a, 0x0d, 0x0d, 0x0a]
    );
    if is_capture { packets(file, see).map_err(|cause| Fault::new(what(), cause)) } else { lines(file, see, &what) }
}

fn lines(file: File, see: &mut dyn FnMut(&Recorded<'_>), what: &dyn Fn() -> String) -> Result<u64, Fault> {
    let mut file = BufReader::new(file);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        number += 1;
        let count = file.by_ref().take(HEX_LINE_BYTES).read_until(b'\n', &mut line);
        if count.map_err(|error| Fault::io(what(), &error))? == 0 {
            return Ok(0);
        }
        let text = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        let digits: Vec<u8> =
            text.iter().copied().filter(|byte| !byte.is_ascii_whitespace() && *byte != b':').collect();
        if digits.is_empty() {
            continue;
        }
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(|pair| (pair.len() == 2).then(|| byte(pair))?).collect();
        let Some(bytes) = bytes else {
            return Err(Fault::new(what(), format!("line {number} is not a row of hexadecimal digits, two a byte"))
                .hint("give a capture (pcap, pcapng), or a text with a datagram in each line"));
        };
        see(&Recorded { sender: None, port: None, bytes: &bytes });
    }
}

fn packets(file: File, see: &mut dyn FnMut(&Recorded<'_>)) -> Result<u64, String> {
    let wrong = |error: PcapError<&[u8]>| format!("the capture is damaged: {error}");
    let mut reader = pcap_parser::create_reader(CAPTURE_BLOCK_BYTES, file).map_err(wrong)?;
    let (mut links, mut others) = (Vec::new(), 0);
    let mut before = usize::MAX;
    loop {
        match reader.next() {
            Ok((offset, block)) => {
                match block {
                    PcapBlockOwned::LegacyHeader(header) => links = vec![header.network],
                    PcapBlockOwned::NG(Block::SectionHeader(_)) => links.clear(),
                    PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => links.push(interface.linktype),
                    PcapBlockOwned::Legacy(packet) => {
                        let is_whole = packet.caplen == packet.origlen;
                        others += u64::from(!datagram(links.first(), packet.data, is_whole, see));
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        let link = links.get(packet.if_id as usize);
                        let data = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
                        others += u64::from(!datagram(link, data, packet.caplen == packet.origlen, see));
                    }
                    PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                        let data = packet.data.get(..packet.origlen as usize);
                        others += u64::from(!datagram(links.first(), data.unwrap_or_default(), data.is_some(), see));
                    }
                    PcapBlockOwned::NG(_) => {}
                }
                reader.consume(offset);
                before = usize::MAX;
            }
            Err(PcapError::Eof) => return Ok(others),
            Err(PcapError::Incomplete(_)) => {
                // The file ends in the middle of a packet.
                let there = reader.data().len();
                if there == before {
                    return Err("it ends in the middle of a packet".to_owned());
                }
                before = there;
                reader.refill().map_err(wrong)?;
            }
            Err(error) => return Err(wrong(error)),
        }
    }
}

/// Passes the datagram in a packet to `see`. False if there is none, or not all of it.
fn datagram(link: Option<&Linktype>, packet: &[u8], is_whole: bool, see: &mut dyn FnMut(&Recorded<'_>)) -> bool {
    let sliced = match link {
        Some(&Linktype::ETHERNET) => SlicedPacket::from_ethernet(packet),
        Some(&Linktype::LINUX_SLL) => SlicedPacket::from_linux_sll(packet),
        // Version 2 of it: 20 bytes, of which the first two are the type.
        Some(&Linktype(276)) if packet.len() >= 20 => {
            SlicedPacket::from_ether_type(EtherType(u16::from_be_bytes([packet[0], packet[1]])), &packet[20..])
        }
        Some(&(Linktype::NULL | Linktype::LOOP)) if packet.len() >= 4 => SlicedPacket::from_ip(&packet[4..]),
        Some(&(Linktype::RAW | Linktype::IPV4 | Linktype::IPV6)) => SlicedPacket::from_ip(packet),
        _ => return false,
    };
    let Ok(SlicedPacket { net: Some(net), transport: Some(TransportSlice::Udp(udp)), .. }) = sliced else {
        return false;
    };
    let sender = match &net {
        NetSlice::Ipv4(ip) => IpAddr::V4(ip.header().source_addr()),
        NetSlice::Ipv6(ip) => IpAddr::V6(ip.header().source_addr()),
        NetSlice::Arp(_) => return false,
    };
    if !is_whole {
        return false;
    }
    see(&Recorded { sender: Some(sender), port: Some(udp.destination_port()), bytes: udp.payload() });
    true
}
