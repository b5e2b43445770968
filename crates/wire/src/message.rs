//! A message of any schema: which one it is, its time, reading and writing without naming the module.

use crate::*;

/// Makes the enum and all that goes through every schema: for each its variant, its struct, and its time.
macro_rules! messages {
    ($($variant:ident = $module:ident::$part:ident, $message:pat => $time:expr;)*) => {
        /// A message of any schema that beamport reads.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "one for each module, named as it")]
        pub enum Message<'a> {
            $( $variant($module::$part<'a>), )*
        }

        /// Every schema id that [`read`] knows.
        pub const KNOWN: [[u8; 4]; [$( $module::ID ),*].len()] = [$( $module::ID ),*];

        /// Verifies and reads a message of any known schema.
        pub fn read(bytes: &[u8]) -> Result<Message<'_>, Error> {
            let found = schema_id(bytes).ok_or(Error::TooShort { length: bytes.len() })?;
            match found {
                $( $module::ID => $module::read(bytes).map(Message::$variant), )*
                found => Err(Error::UnknownSchema { found }),
            }
        }

        impl Message<'_> {
            /// Source time, ns since 1970 UTC: of the first pulse, of the value, of the data, of the frame. `None`
            /// where the message has none (`ev44` without pulses, `pl72`, `6s4t`, `bptk`, `bpdn`...).
            pub fn time(&self) -> Option<i64> {
                match self {
                    $( Message::$variant($message) => $time, )*
                }
            }

            /// Writes the message into `out`, replacing what was there.
            pub fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
                match self {
                    $( Message::$variant(message) => $module::write(out, message), )*
                }
            }
        }
    };
}

messages! {
    Ad00 = ad00::Ad00, m => Some(m.timestamp);
    Adar = adar::Adar, m => Some(m.timestamp);
    Al00 = al00::Al00, m => Some(m.timestamp);
    An44 = an44::An44, m => m.reference_time.first();
    Answ = answ::Answ, _ => None;
    Ar51 = ar51::Ar51, _ => None;
    Da00 = da00::Da00, m => Some(m.timestamp);
    Df12 = df12::SpectrumMap, _ => None;
    Ep00 = ep00::Ep00, m => signed(m.timestamp);
    Ep01 = ep01::Ep01, m => Some(m.timestamp);
    Ev42 = ev42::Ev42, m => signed(m.pulse_time);
    Ev43 = ev43::Ev43, m => m.pulse_time.first().and_then(signed);
    Ev44 = ev44::Ev44, m => m.reference_time.first();
    F142 = f142::F142, m => signed(m.timestamp);
    F144 = f144::F144, m => Some(m.timestamp);
    Fc00 = fc00::ConfigUpdate, _ => None;
    Hs00 = hs00::Histogram, m => signed(m.timestamp);
    Hs01 = hs01::Histogram, m => Some(m.timestamp);
    Json = json::JsonData, _ => None;
    Ndar = ndar::Ndar, _ => None;
    Ns10 = ns10::CacheEntry, m => m.since();
    Pl72 = pl72::Pl72, _ => None;
    Pu00 = pu00::Pu00, m => Some(m.reference_time);
    Rf5k = rf5k::ConfigUpdate, _ => None;
    S6s4t = s6s4t::RunStop, _ => None;
    Se00 = se00::Se00, m => Some(m.packet_timestamp);
    Senv = senv::Senv, m => signed(m.packet_timestamp);
    Tdct = tdct::Tdct, m => m.timestamps.first().and_then(signed);
    Un00 = un00::Un00, m => Some(m.timestamp);
    Vc00 = vc00::Vc00, m => Some(m.timestamp);
    Wrdn = wrdn::Wrdn, _ => None;
    X5f2 = x5f2::X5f2, _ => None;
    Bpas = bpas::Aside, m => Some(m.time);
    Bpcm = bpcm::Commit, m => Some(m.time);
    Bpct = bpct::Control, m => Some(m.time);
    Bpdn = bpdn::Answer, _ => None;
    Bpgp = bpgp::Gap, m => Some(m.from);
    Bpgr = bpgr::Group, m => Some(m.time);
    Bppv = bppv::PvValue, m => Some(m.timestamp);
    Bprn = bprn::Run, m => Some(m.time);
    Bpst = bpst::Status, m => Some(m.time);
    Bptk = bptk::Task, _ => None;
}

/// A time of an older schema; `None` where it lies past the year 2262.
fn signed(time: u64) -> Option<i64> {
    i64::try_from(time).ok()
}
