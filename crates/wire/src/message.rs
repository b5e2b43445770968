//! A message of any schema: which one it is, its time, reading and writing without naming the module.

use crate::{
    Error, ad00, al00, bpas, bpcm, bpct, bpdn, bpgp, bpgr, bprn, bpst, bptk, da00, ev44, f144, pl72, s6s4t, schema_id,
    se00,
};

/// A message of any schema that beamport reads.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "one for each module, named as it")]
pub enum Message<'a> {
    Ad00(ad00::Ad00<'a>),
    Al00(al00::Al00<'a>),
    Da00(da00::Da00<'a>),
    Ev44(ev44::Ev44<'a>),
    F144(f144::F144<'a>),
    Pl72(pl72::Pl72<'a>),
    S6s4t(s6s4t::RunStop<'a>),
    Se00(se00::Se00<'a>),
    Bpas(bpas::Aside<'a>),
    Bpcm(bpcm::Commit<'a>),
    Bpct(bpct::Control<'a>),
    Bpdn(bpdn::Answer<'a>),
    Bpgp(bpgp::Gap<'a>),
    Bpgr(bpgr::Group<'a>),
    Bprn(bprn::Run<'a>),
    Bpst(bpst::Status<'a>),
    Bptk(bptk::Task<'a>),
}

/// Every schema id that [`read`] knows.
pub const KNOWN: [[u8; 4]; 17] = [
    ad00::ID,
    al00::ID,
    da00::ID,
    ev44::ID,
    f144::ID,
    pl72::ID,
    s6s4t::ID,
    se00::ID,
    bpas::ID,
    bpcm::ID,
    bpct::ID,
    bpdn::ID,
    bpgp::ID,
    bpgr::ID,
    bprn::ID,
    bpst::ID,
    bptk::ID,
];

/// Verifies and reads a message of any known schema.
pub fn read(bytes: &[u8]) -> Result<Message<'_>, Error> {
    let found = schema_id(bytes).ok_or(Error::TooShort { length: bytes.len() })?;
    match found {
        ad00::ID => ad00::read(bytes).map(Message::Ad00),
        al00::ID => al00::read(bytes).map(Message::Al00),
        da00::ID => da00::read(bytes).map(Message::Da00),
        ev44::ID => ev44::read(bytes).map(Message::Ev44),
        f144::ID => f144::read(bytes).map(Message::F144),
        pl72::ID => pl72::read(bytes).map(Message::Pl72),
        s6s4t::ID => s6s4t::read(bytes).map(Message::S6s4t),
        se00::ID => se00::read(bytes).map(Message::Se00),
        bpas::ID => bpas::read(bytes).map(Message::Bpas),
        bpcm::ID => bpcm::read(bytes).map(Message::Bpcm),
        bpct::ID => bpct::read(bytes).map(Message::Bpct),
        bpdn::ID => bpdn::read(bytes).map(Message::Bpdn),
        bpgp::ID => bpgp::read(bytes).map(Message::Bpgp),
        bpgr::ID => bpgr::read(bytes).map(Message::Bpgr),
        bprn::ID => bprn::read(bytes).map(Message::Bprn),
        bpst::ID => bpst::read(bytes).map(Message::Bpst),
        bptk::ID => bptk::read(bytes).map(Message::Bptk),
        found => Err(Error::UnknownSchema { found }),
    }
}

impl Message<'_> {
    /// Source time, ns since 1970 UTC: of the first pulse, of the value, of the data, of the frame. `None` where the
    /// message has none (`ev44` without pulses, `pl72`, `6s4t`, `bptk`, `bpdn`).
    pub fn time(&self) -> Option<i64> {
        match self {
            Message::Ad00(m) => Some(m.timestamp),
            Message::Al00(m) => Some(m.timestamp),
            Message::Da00(m) => Some(m.timestamp),
            Message::Ev44(m) => m.reference_time.first(),
            Message::F144(m) => Some(m.timestamp),
            Message::Se00(m) => Some(m.packet_timestamp),
            Message::Pl72(_) | Message::S6s4t(_) | Message::Bpdn(_) | Message::Bptk(_) => None,
            Message::Bpas(m) => Some(m.time),
            Message::Bpcm(m) => Some(m.time),
            Message::Bpct(m) => Some(m.time),
            Message::Bpgp(m) => Some(m.from),
            Message::Bpgr(m) => Some(m.time),
            Message::Bprn(m) => Some(m.time),
            Message::Bpst(m) => Some(m.time),
        }
    }

    /// Writes the message into `out`, replacing what was there.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        match self {
            Message::Ad00(m) => ad00::write(out, m),
            Message::Al00(m) => al00::write(out, m),
            Message::Da00(m) => da00::write(out, m),
            Message::Ev44(m) => ev44::write(out, m),
            Message::F144(m) => f144::write(out, m),
            Message::Pl72(m) => pl72::write(out, m),
            Message::S6s4t(m) => s6s4t::write(out, m),
            Message::Se00(m) => se00::write(out, m),
            Message::Bpas(m) => bpas::write(out, m),
            Message::Bpcm(m) => bpcm::write(out, m),
            Message::Bpct(m) => bpct::write(out, m),
            Message::Bpdn(m) => bpdn::write(out, m),
            Message::Bpgp(m) => bpgp::write(out, m),
            Message::Bpgr(m) => bpgr::write(out, m),
            Message::Bprn(m) => bprn::write(out, m),
            Message::Bpst(m) => bpst::write(out, m),
            Message::Bptk(m) => bptk::write(out, m),
        }
    }
}
