//! What a section of kind `udp` says: data, without what is built of it.

use crate::boards_plan::Boards;
use crate::framing::{BEAMPORT, ByLibrary, ByTable, Framing, FramingKind, Library, MakeFraming, Table, Ticks};
use crate::limits::BITS;
use crate::network::Network;
use crate::throttle::Throttle;
use crate::zero::{First, ZeroWord};
use flow::Fault;
use settings::Origin;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The framing of the datagrams.
#[derive(Clone)]
pub(crate) enum FramingPlan {
    /// By a word.
    Kind(&'static FramingKind, MakeFraming),
    Table(Arc<Table>),
    /// In a file, once it is loaded.
    Library(PathBuf, OnceLock<Arc<Library>>),
}

impl std::fmt::Debug for FramingPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kind(kind, _) => write!(f, "Kind({})", kind.word),
            Self::Table(table) => write!(f, "Table({table:?})"),
            Self::Library(path, _) => write!(f, "Library({})", path.display()),
        }
    }
}

impl FramingPlan {
    /// The framing of a port, whose messages have this origin.
    pub(crate) fn build(&self, origin: &str) -> Result<Box<dyn Framing>, Fault> {
        Ok(match self {
            Self::Kind(_, make) => make(origin),
            Self::Table(table) => Box::new(ByTable::new(table.clone())),
            Self::Library(path, loaded) => {
                let library = match loaded.get() {
                    Some(library) => library.clone(),
                    None => {
                        let library = Arc::new(Library::load(path)?);
                        loaded.get_or_init(|| library).clone()
                    }
                };
                Box::new(ByLibrary::new(library))
            }
        })
    }

    /// The clock of the boards, where its kind knows it.
    pub(crate) fn ticks(&self) -> Option<Ticks> {
        match self {
            Self::Kind(kind, _) => kind.ticks,
            Self::Table(_) | Self::Library(..) => None,
        }
    }

    /// Bits of the counter of ticks. One of few bits begins again too often to be continued by the time of arrival.
    pub(crate) fn tick_bits(&self) -> u32 {
        let of_table = |table: &Table| table.tick_bits().filter(|bits| BITS.contains(&i64::from(*bits)));
        let bits = match self {
            Self::Table(table) => of_table(table),
            Self::Kind(..) | Self::Library(..) => self.ticks().map(|ticks| ticks.bits),
        };
        bits.unwrap_or(u64::BITS)
    }

    /// Whether simulated boards can write its header.
    pub(crate) fn is_written(&self) -> bool {
        match self {
            Self::Kind(kind, _) => kind.head.is_some(),
            Self::Table(_) => true,
            Self::Library(..) => false,
        }
    }

    /// Whether its boards send signs of life.
    pub(crate) fn has_signs(&self) -> bool {
        matches!(self, Self::Kind(kind, _) if kind.word == BEAMPORT.word)
    }
}

/// A port, and the origin of what comes there.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) at: SocketAddr,
    pub(crate) origin: String,
}

/// The plan of a section.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the source.
    pub(crate) name: String,
    /// Where it listens, in order; one at least.
    pub(crate) ports: Vec<Address>,
    /// Where another program listens, it does not start.
    pub(crate) needs_all: bool,
    /// Line of `listen`.
    pub(crate) listen_at: Origin,
    pub(crate) framing: FramingPlan,
    /// Networks of the senders; none: everybody may send.
    pub(crate) allow: Vec<Network>,
    /// ns
    pub(crate) reorder: i64,
    /// ns
    pub(crate) drain: i64,
    /// Bytes of the socket's buffer.
    pub(crate) buffer: u64,
    /// The kernel may pass several datagrams at once.
    pub(crate) gro: bool,
    /// Name of a network interface.
    pub(crate) interface: Option<String>,
    /// ns
    pub(crate) tick: Option<i64>,
    pub(crate) zero: ZeroWord,
    /// The zero that sources share, once the data folder is known.
    pub(crate) first: OnceLock<Arc<First>>,
    /// After this many ticks timestamps begin again.
    pub(crate) wrap: Option<u64>,
    pub(crate) throttle: Option<Throttle>,
    pub(crate) boards: Option<Boards>,
}

impl Plan {
    /// Whether the source has simulated boards.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.boards.is_some()
    }

    /// Addresses at which not both can listen: 0.0.0.0 is every address of its family.
    pub(crate) fn shared_address(&self, other: &Self) -> Option<(SocketAddr, SocketAddr)> {
        if self.interface.is_some() && other.interface.is_some() && self.interface != other.interface {
            return None;
        }
        let shares = |ours: SocketAddr, theirs: SocketAddr| {
            let is_any = ours.ip().is_unspecified() || theirs.ip().is_unspecified();
            let is_same = ours.ip() == theirs.ip() || is_any && ours.is_ipv4() == theirs.is_ipv4();
            ours.port() != 0 && ours.port() == theirs.port() && is_same
        };
        let of = |plan: &Self| plan.ports.iter().map(|port| port.at).collect::<Vec<_>>();
        let theirs = of(other);
        of(self).into_iter().find_map(|ours| Some((ours, *theirs.iter().find(|theirs| shares(ours, **theirs))?)))
    }
}
