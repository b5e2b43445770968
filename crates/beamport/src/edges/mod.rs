//! The kinds of sources and sinks, the ready-made workers, the formats of exported files, and the commands of edges
//! that this program knows: the one list of them.

mod appended;
mod files;
mod nexus;
mod python;
mod replay;
mod sink;

pub(crate) use files::check_pattern as check_files_pattern;
pub(crate) use nexus::readable;
pub(crate) use replay::Replay;
pub use replay::Speed;
pub use sink::{Around, FileKind, FilePlan, SinkKind, TemplateAnswer, TemplateCheck};
pub(crate) use sink::{check_name as check_file_name, filled, one_for_all};

use flow::edge::{CarrierKind, CommandKind, ExportKind, SourceKind, WorkerKind};

/// The kinds that an instrument file may name. A program of its own may know more:
/// `beamport::run(&Registry::builtin().source(&mine::SOURCE))`.
#[derive(Clone, Debug)]
pub struct Registry {
    sources: Vec<&'static SourceKind>,
    sinks: Vec<SinkKind>,
    workers: Vec<&'static WorkerKind>,
    commands: Vec<&'static CommandKind>,
    exports: Vec<&'static ExportKind>,
    carriers: Vec<&'static CarrierKind>,
}

impl Registry {
    /// The kinds that come with beamport.
    #[must_use]
    pub fn builtin() -> Self {
        let none = Self {
            sources: Vec::new(),
            sinks: Vec::new(),
            workers: Vec::new(),
            commands: Vec::new(),
            exports: Vec::new(),
            carriers: Vec::new(),
        };
        none.source(&sim::SOURCE)
            .source(&replay::SOURCE)
            .source(&appended::SOURCE)
            .source(&python::SOURCE)
            .source(&kafka::SOURCE)
            .source(&epics::PVA)
            .source(&epics::CA)
            .source(&udp::SOURCE)
            .source(&udp::FILE)
            .sink(&nexus::SINK)
            .sink(&files::SINK)
            .sink(&kafka::SINK)
            .sink(&epics::SINK)
            .carrier(&kafka::CARRIER)
            .carrier(&https::CARRIER)
            .export(&udp::GEB)
            .export(&udp::HLD)
            .command(&epics::PUT)
            .command(&epics::GET)
            .worker(&workers::ATTACH)
            .worker(&workers::COPY)
            .worker(&workers::FILTER)
            .worker(&workers::GROUPS)
            .worker(&workers::HISTOGRAM)
            .worker(&workers::SPLIT)
            .worker(&workers::STITCH)
            .worker(&workers::SUM)
    }

    /// The same with another kind of source, in the place of one of the same name.
    #[must_use]
    pub fn source(mut self, kind: &'static SourceKind) -> Self {
        self.sources.retain(|known| known.name != kind.name);
        self.sources.push(kind);
        self
    }

    /// The same with another kind of sink, of files (`FileKind`) or live (`flow::edge::LiveKind`), in the place of
    /// one of the same name.
    #[must_use]
    pub fn sink(mut self, kind: impl Into<SinkKind>) -> Self {
        let kind = kind.into();
        self.sinks.retain(|known| known.name() != kind.name());
        self.sinks.push(kind);
        self
    }

    /// The same with another ready-made worker, in the place of one of the same name.
    #[must_use]
    pub fn worker(mut self, kind: &'static WorkerKind) -> Self {
        self.workers.retain(|known| known.name != kind.name);
        self.workers.push(kind);
        self
    }

    /// The same with another command at the control socket, in the place of one of the same name.
    #[must_use]
    pub fn command(mut self, kind: &'static CommandKind) -> Self {
        self.commands.retain(|known| known.name != kind.name);
        self.commands.push(kind);
        self
    }

    /// The same with another format of exported files, in the place of one of the same name.
    #[must_use]
    pub fn export(mut self, kind: &'static ExportKind) -> Self {
        self.exports.retain(|known| known.name != kind.name);
        self.exports.push(kind);
        self
    }

    /// The same with another carrier of streams between hosts, in the place of one of the same name.
    #[must_use]
    pub fn carrier(mut self, kind: &'static CarrierKind) -> Self {
        self.carriers.retain(|known| known.name != kind.name);
        self.carriers.push(kind);
        self
    }

    /// Carriers of streams between hosts.
    #[must_use]
    pub fn carriers(&self) -> &[&'static CarrierKind] {
        &self.carriers
    }

    /// Formats of exported files.
    #[must_use]
    pub fn exports(&self) -> &[&'static ExportKind] {
        &self.exports
    }

    /// Kinds of sources, in the order of the reference page.
    #[must_use]
    pub fn sources(&self) -> &[&'static SourceKind] {
        &self.sources
    }

    /// Kinds of sinks, in the order of the reference page.
    #[must_use]
    pub fn sinks(&self) -> &[SinkKind] {
        &self.sinks
    }

    /// Commands of edges.
    #[must_use]
    pub fn commands(&self) -> &[&'static CommandKind] {
        &self.commands
    }

    /// Ready-made workers, in the order of the reference page.
    #[must_use]
    pub fn workers(&self) -> &[&'static WorkerKind] {
        &self.workers
    }
}
