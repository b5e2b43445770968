//! The instrument file: one TOML that says which sources fill which streams, where they go, and which runs there are.
//!
//! Purpose: every mistake at once, each with its line, its cause and a hint; and every resolved value with
//! the line it comes from, so that `check --show` can answer "why does it do that".
//! Constraints: any text may come in. Sizes, depth and counts are limited (`limits.rs`), nothing panics,
//! and nothing is created, run or sent: reading a file has no effect beyond reading it and its templates.
//! Failure: a list of [`Mistake`]s, never a half-read instrument.

mod comes;
mod cross;
mod family;
mod hosts;
pub mod keys;
mod lines;
mod live;
mod merge;
mod parts;
mod run;
mod shadow;
mod shared;
mod show;
mod sink;
mod source;
mod stage;
mod stop_when;
mod stream;
mod worker;
mod writers;

pub use crate::code::{Copied, Parameters};
pub use hosts::{
    Crossing, HostPart, HostSection, Hosts, LEAD_RUNS, MIRROR, MirrorSection, SINK as HOSTS_SINK, WorkerHosts,
    is_hosts_sink,
};
pub use live::LiveSection;
pub use merge::{MergeKind, MergeSection, Waits};
pub use run::{RunSection, Start};
pub(crate) use show::toml_text;
pub use sink::SinkSection;
pub(crate) use sink::{writer_file, writer_name};
pub use source::SourceSection;
pub use stage::Stage;
pub use stop_when::StopWhen;
pub use stream::StreamSection;
pub use worker::{Code, Environment, Numbers, Order, WorkerSection};

use crate::edges::{Around, Registry, SinkKind, TemplateAnswer, TemplateCheck};
use crate::limits;
use flow::edge::{CarrierKind, CommandKind, WorkerKind};
use flow::job::Writer;
pub(crate) use settings::Word;
use settings::{
    Key, Mistakes, Page, Refused, Section, Table, is_family, is_stream_name, shortened, wrong_name, wrong_run_name,
};
pub use settings::{Mistake, Origin, Setting, Severity, Shown, is_run_name, nearest};
use sha2::Digest as _;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml_edit::{Item, TableLike};

/// A [`TemplateCheck`] for verbs to which templates do not matter: nothing is known of them.
pub fn unasked(_: &Path, _: &Writer) -> TemplateAnswer {
    TemplateAnswer::default()
}

/// A whole instrument file, resolved: paths are absolute, defaults filled in, names checked against each other.
#[derive(Clone, Debug)]
pub struct Instrument {
    /// The file as the user named it.
    pub file: PathBuf,
    /// SHA-256 of its text, in hexadecimal digits.
    pub sha256: String,
    /// Name of the instrument.
    pub name: Setting<String>,
    /// Folder of the streams.
    pub data: Setting<PathBuf>,
    /// Number of the group of users that the data folder is shared with.
    pub group: Option<u32>,
    /// How long streams wait for a reader from outside whose process has ended.
    pub reader_timeout: Setting<Duration>,
    /// Readers from outside that are waited for however long they are away.
    pub readers: Vec<String>,
    /// Sources, then merges and workers in the order of the file, then live sinks: each stage reads only stages
    /// before it.
    pub stages: Vec<Stage>,
    /// Sinks that make files of runs, in the order of the file.
    pub sinks: Vec<SinkSection>,
    /// Declared runs in the order of the file.
    pub runs: Vec<RunSection>,
    /// The page, where there is one.
    pub page: Option<web::Plan>,
    /// The hosts, where there are several.
    pub hosts: Option<Hosts>,
    /// Of [`Instrument::part`]: whose part it is. The whole instrument, of every host or without hosts, has none.
    pub part: Option<HostPart>,
    /// Commands of edges at the control socket.
    pub commands: Vec<&'static CommandKind>,
    /// Settings that have no effect as written, such as a key that is ignored.
    pub warnings: Vec<Mistake>,
    shown: Vec<Shown>,
    shown_page: Option<(u32, Vec<Shown>)>,
}

/// Reads an instrument file and all it names, or says every mistake, sorted by line.
pub fn read(path: &Path, registry: &Registry, template_check: &TemplateCheck<'_>) -> Result<Instrument, Vec<Mistake>> {
    let text = settings::text_of(path).map_err(|mistake| vec![*mistake])?;
    parse(&text, path, registry, template_check)
}

/// The same for a text that would stand at `path`.
pub fn parse(
    text: &str,
    path: &Path,
    registry: &Registry,
    template_check: &TemplateCheck<'_>,
) -> Result<Instrument, Vec<Mistake>> {
    let page = Page::new(path.display().to_string(), text);
    let parsed = settings::parse(&page, text);
    let mut mistakes = Mistakes::default();
    parsed.mistakes.into_iter().for_each(|mistake| mistakes.push(mistake));
    // Sinks may share a template: its writer is asked once.
    let answers = RefCell::new(HashMap::<(PathBuf, Writer), TemplateAnswer>::new());
    let template_check = |path: &Path, writer: &Writer| {
        let mut answers = answers.borrow_mut();
        let answer = answers.entry((path.to_owned(), writer.clone()));
        answer.or_insert_with(|| template_check(path, writer)).clone()
    };
    let instrument = parsed.document.map(|document| {
        let mut reader = Reader {
            page: &page,
            registry,
            mistakes: &mut mistakes,
            has_holes: parsed.has_holes,
            entries: limits::ENTRIES_MAX,
            has_hosts: false,
            carrier: None,
            hosts: Vec::new(),
            mirrors: Vec::new(),
            host_of: HashMap::new(),
        };
        reader.instrument(document.as_table(), path, &template_check)
    });
    let mut list = std::mem::take(&mut mistakes.list);
    let is_good = list.is_empty();
    list.append(&mut mistakes.warnings);
    if let (Some(instrument), true) = (instrument, is_good) {
        let sha256 = store::hex(&sha2::Sha256::digest(text));
        return Ok(Instrument { sha256, warnings: sorted(list, &page), ..instrument });
    }
    if mistakes.has_more {
        let what = format!("more than {} mistakes", settings::limits::MISTAKES_MAX);
        list.push(page.mistake(u32::MAX, what, "", "correct the ones above first"));
    }
    Err(sorted(list, &page))
}

/// Mistakes, with their lines, and modules of a template that no instrument file names; an error says why it cannot be read.
pub(crate) fn checked_template(
    path: &Path,
    writer: &Writer,
    template_check: &TemplateCheck<'_>,
) -> Result<TemplateAnswer, String> {
    crate::edges::readable(path)?;
    let mut answer = template_check(path, writer);
    find_lines(&mut answer.mistakes);
    answer.mistakes.sort_by_key(|mistake| mistake.line);
    Ok(answer)
}

/// In the order of the lines, each once.
fn sorted(mut list: Vec<Mistake>, page: &Page) -> Vec<Mistake> {
    find_lines(&mut list);
    // Mistakes of templates come behind those of the file itself, each file in the order of its lines.
    list.sort_by(|a, b| (a.file != page.file, &a.file, a.line).cmp(&(b.file != page.file, &b.file, b.line)));
    list.iter_mut().filter(|mistake| mistake.line == u32::MAX).for_each(|mistake| mistake.line = 0);
    // Two sinks may have the same template.
    let mut known = HashSet::new();
    list.retain(|mistake| known.insert(mistake.to_string()));
    list
}

/// The lines of mistakes in templates, which are known by their pointers.
fn find_lines(mistakes: &mut [Mistake]) {
    let has_place = |mistake: &&mut Mistake| mistake.line == 0 && !mistake.pointer.is_empty();
    let files: BTreeSet<String> = mistakes.iter_mut().filter(has_place).map(|mistake| mistake.file.clone()).collect();
    for file in files {
        // It was read before, within the limits; without it there are no lines.
        let Ok(text) = std::fs::read(&file) else { continue };
        let mut here: Vec<&mut Mistake> =
            mistakes.iter_mut().filter(has_place).filter(|mistake| mistake.file == file).collect();
        let pointers: Vec<&str> = here.iter().map(|mistake| mistake.pointer.as_str()).collect();
        let lines = lines::lines(&text, &pointers);
        here.iter_mut().zip(lines).for_each(|(mistake, line)| mistake.line = line);
    }
}

/// Where a section, or a family of them, stands.
struct SectionPlace<'a> {
    kind: &'a str,
    title: String,
    line: u32,
    folder: &'a Path,
    is_many: bool,
}

/// Walks the sections of one file.
struct Reader<'a> {
    page: &'a Page,
    registry: &'a Registry,
    mistakes: &'a mut Mistakes,
    has_holes: bool,
    /// Entries that ranges in lists may still stand for.
    entries: usize,
    /// The file has `[hosts]`.
    has_hosts: bool,
    /// The kind of carrier of streams between them.
    carrier: Option<&'static CarrierKind>,
    hosts: Vec<HostSection>,
    mirrors: Vec<MirrorSection>,
    /// Hosts of stages and sinks that name one.
    host_of: HashMap<String, Setting<String>>,
}

/// The section of the page.
const PAGE: &str = "web";
/// The section of the hosts.
const HOSTS: &str = "hosts";
const SECTIONS: [&str; 7] = ["host", "mirror", "source", "merge", "worker", "sink", "run"];

impl Reader<'_> {
    fn instrument(&mut self, root: &dyn TableLike, path: &Path, template_check: &TemplateCheck<'_>) -> Instrument {
        let folder =
            std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned)).unwrap_or_default();
        let owner = |name: &str| owner_of(self.registry, name);
        let mut top = Section {
            page: self.page,
            folder: &folder,
            elsewhere: &owner,
            title: String::new(),
            line: 1,
            table: root,
            mistakes: self.mistakes,
            has_holes: self.has_holes,
            shown: Vec::new(),
            asked: Vec::new(),
        };
        let name: Setting<String> = top.need(&keys::INSTRUMENT);
        if !name.is_empty() && !is_stream_name(&name) {
            top.refuse(&keys::INSTRUMENT, wrong_name(&name));
        }
        let data = match top.get::<String>(&keys::DATA) {
            Some(data) => {
                if data.starts_with('~') || data.contains('$') {
                    top.refuse(
                        &keys::DATA,
                        Refused::new(
                            "`~` and `$` are not expanded",
                            "write the path itself, absolute or relative to the instrument file",
                        ),
                    );
                }
                data.map(|data| folder.join(data).components().collect())
            }
            None => {
                let data = folder.join("beamport-data").join(name.as_str());
                top.note(&keys::DATA, Setting::by_default(data.display().to_string()));
                Setting::by_default(data)
            }
        };
        let group = top.get::<String>(&keys::GROUP);
        let group = group.and_then(|name| match store::group_number(&name) {
            Ok(Some(number)) => Some(number),
            answer => {
                let why = answer.err().map_or_else(|| format!("there is no group `{}`", *name), |e| e.to_string());
                let hint = "list the groups with `getent group`, or have one made: `sudo groupadd NAME`";
                top.refuse(&keys::GROUP, Refused::new(why, hint));
                None
            }
        });
        let reader_timeout = top.need(&keys::READER_TIMEOUT);
        let readers: Option<Setting<Vec<String>>> = top.get(&keys::READERS);
        let shown = std::mem::take(&mut top.shown);
        self.refuse_unknown_top(root);
        let mut instrument = Instrument {
            file: path.to_owned(),
            sha256: String::new(),
            name,
            data,
            group,
            reader_timeout,
            readers: readers.map(|readers| readers.value).unwrap_or_default(),
            stages: Vec::new(),
            sinks: Vec::new(),
            runs: Vec::new(),
            page: None,
            hosts: None,
            part: None,
            commands: self.registry.commands().to_vec(),
            warnings: Vec::new(),
            shown,
            shown_page: None,
        };
        if let Some((line, (plan, shown))) =
            self.nameless(PAGE, root, &folder, |section, _| (web::read(section), section.end()))
        {
            (instrument.page, instrument.shown_page) = (plan, Some((line, shown)));
        }
        let hosts = self.nameless(HOSTS, root, &folder, |section, registry| {
            let kind = kind_of(section, &keys::CARRIER, registry.carriers(), |kind| kind.name);
            let plan = kind.and_then(|kind| (kind.read)(section));
            // Without a kind the keys that belong here are not known: the kind comes first.
            if kind.is_some() { (kind, plan, section.end()) } else { (kind, plan, Vec::new()) }
        });
        self.carrier = hosts.as_ref().and_then(|(_, (kind, ..))| *kind);
        instrument.hosts = hosts.and_then(|(line, (_, plan, shown))| {
            let (all, of, mirrors, parts, parts_twice, on_parts) = Default::default();
            Some(Hosts { line, carrier: plan?, all, of, mirrors, parts, parts_twice, on_parts, shown })
        });
        self.has_hosts = root.contains_key(HOSTS);
        let mut count = 0;
        for kind in SECTIONS {
            self.kind(kind, root, &mut count, &folder, template_check, &mut instrument);
            // Programs that look at what later sections name get none.
            instrument.hide_secrets();
        }
        // Also sources that are wrong in themselves count as named: one mistake is not reported again wherever the name is used.
        let names: Vec<String> = root
            .get("source")
            .and_then(Item::as_table_like)
            .map(|named| {
                named
                    .iter()
                    .flat_map(|(name, _)| family::names(name).unwrap_or_else(|_| vec![name.to_owned()]))
                    .collect()
            })
            .unwrap_or_default();
        instrument.sort_stages();
        if let Some(hosts) = &mut instrument.hosts {
            (hosts.all, hosts.of) = (std::mem::take(&mut self.hosts), std::mem::take(&mut self.host_of));
            hosts.mirrors = std::mem::take(&mut self.mirrors);
            hosts.join();
        }
        shadow::resolve(self.page, self.mistakes, self.has_holes, &mut instrument);
        cross::check_stages(self.page, self.mistakes, self.has_holes, &names, &mut instrument);
        cross::check(self.page, self.mistakes, self.has_holes, &names, &mut instrument);
        if let Some(hosts) = &instrument.hosts {
            hosts::check(self.page, self.mistakes, &instrument, hosts);
        }
        instrument.split_copies();
        instrument
    }

    /// Reads a section without a name: its line and what `read` makes of it.
    fn nameless<T>(
        &mut self,
        word: &str,
        root: &dyn TableLike,
        folder: &Path,
        read: impl FnOnce(&mut Section<'_>, &Registry) -> T,
    ) -> Option<(u32, T)> {
        let (key, item) = root.get_key_value(word)?;
        let line = key.span().or_else(|| item.span()).map_or(1, |span| self.page.line(span.start));
        let Some(table) = item.as_table_like() else {
            let what = format!("`{word}` is a section, not a value");
            self.mistakes.push(self.page.mistake(line, what, "", format!("write `[{word}]` and its keys below")));
            return None;
        };
        let owner = |name: &str| owner_of(self.registry, name);
        let mut section = Section {
            page: self.page,
            folder,
            elsewhere: &owner,
            title: format!("[{word}]"),
            line,
            table,
            mistakes: self.mistakes,
            has_holes: self.has_holes,
            shown: Vec::new(),
            asked: Vec::new(),
        };
        Some((line, read(&mut section, self.registry)))
    }

    /// Reads all sections of one kind.
    fn kind(
        &mut self,
        kind: &str,
        root: &dyn TableLike,
        count: &mut usize,
        folder: &Path,
        template_check: &TemplateCheck<'_>,
        into: &mut Instrument,
    ) {
        let Some((key, item)) = root.get_key_value(kind) else {
            return;
        };
        let line = key.span().or_else(|| item.span()).map_or(1, |span| self.page.line(span.start));
        let hint = format!("write `[{kind}.NAME]` and its keys below");
        let Some(named) = item.as_table_like() else {
            self.mistakes.push(self.page.mistake(
                line,
                format!("`{kind}` is a kind of section, not a value"),
                "",
                hint,
            ));
            return;
        };
        let mut known = HashSet::new();
        for (header, item) in named.iter() {
            let line = named.key(header).and_then(|key| key.span()).map_or(line, |span| self.page.line(span.start));
            let title = if family::names(header).is_ok_and(|names| names.len() == 1) {
                format!("[{kind}.{}]", shortened(header))
            } else {
                format!("[{kind}.\"{}\"]", shortened(header))
            };
            if item.as_table_like().is_none() {
                let what = if matches!(item, Item::ArrayOfTables(_)) {
                    format!("{title} has double brackets")
                } else {
                    format!("`{}` is in [{kind}], which has no name", shortened(header))
                };
                self.mistakes.push(self.page.mistake(line, what, "", &*hint));
                continue;
            }
            let wrong_name = |refused: Refused| {
                self.page.mistake(line, format!("wrong name of {title}"), refused.cause, refused.hint)
            };
            let names = match family::names(header) {
                Ok(names) => names,
                Err(refused) => {
                    self.mistakes.push(wrong_name(refused));
                    continue;
                }
            };
            *count += names.len();
            if *count > limits::SECTIONS_MAX {
                self.mistakes.push(self.page.mistake(
                    line,
                    "too many sections",
                    format!("more than {}", limits::SECTIONS_MAX),
                    "name the right file, or split the instrument",
                ));
                return;
            }
            if let Some(Err(refused)) = names.iter().map(|name| check_section_name(kind, name)).find(Result::is_err) {
                self.mistakes.push(wrong_name(refused));
            }
            if let Some(twice) = names.iter().find(|name| known.contains(*name)) {
                let what = format!("section `[{kind}.{}]` is given twice", shortened(twice));
                let hint = "rename or remove one of them";
                self.mistakes.push(self.page.mistake(line, what, format!("it is one of {title}"), hint));
            }
            known.extend(names.iter().cloned());
            let place = SectionPlace { kind, title, line, folder, is_many: is_family(header) };
            for (at, name) in names.iter().enumerate() {
                let (own, wrong) = family::member(item, (at, names.len()), place.is_many, &mut self.entries);
                self.section(&place, name, (&own, wrong), template_check, into);
            }
        }
    }

    /// Reads one section.
    fn section(
        &mut self,
        place: &SectionPlace<'_>,
        name: &str,
        (own, wrong): (&Item, Vec<(String, Refused)>),
        template_check: &TemplateCheck<'_>,
        into: &mut Instrument,
    ) {
        let Some(table) = own.as_table_like() else { return };
        let owner = |name: &str| owner_of(self.registry, name);
        let mut section = Section {
            page: self.page,
            folder: place.folder,
            elsewhere: &owner,
            title: place.title.clone(),
            line: place.line,
            table,
            mistakes: self.mistakes,
            has_holes: self.has_holes,
            shown: Vec::new(),
            asked: Vec::new(),
        };
        wrong.into_iter().for_each(|(key, refused)| section.refuse_named(&key, "a range", refused));
        let mut data: &Path = &into.data;
        let (mut worker_hosts, mut merge_hosts) = (None, None);
        if !["host", "mirror", "run"].contains(&place.kind) && self.has_hosts {
            let host: Option<Setting<String>> = section.get(&keys::HOST);
            match place.kind {
                "worker" => worker_hosts = section.get(&keys::WORKER_HOSTS),
                "merge" => merge_hosts = section.get(&keys::MERGE_HOSTS),
                _ => {}
            }
            let is_it = |section: &&HostSection| host.as_ref().is_none_or(|host| host.as_str() == section.name);
            let own = self.hosts.iter().find(is_it).and_then(|section| section.data.as_ref());
            data = own.map_or(data, |own| own.value.as_path());
            self.host_of.extend(host.map(|host| (name.to_owned(), host)));
        }
        match place.kind {
            "host" => self.hosts.push(hosts::read(name, &mut section, self.carrier)),
            "mirror" => self.mirrors.push(hosts::read_mirror(name, &mut section)),
            "source" => into.stages.extend(source::read(name, &mut section, self.registry).map(Stage::Source)),
            "merge" => into.stages.push(Stage::Merge(merge::read(name, &mut section, merge_hosts))),
            "worker" => {
                into.stages.push(Stage::Worker(Box::new(worker::read(name, &mut section, self.registry, worker_hosts))))
            }
            "sink" => {
                // Without a kind the keys that belong here are not known: the kind comes first.
                match kind_of(&mut section, &keys::SINK_KIND, self.registry.sinks(), |kind| kind.name()) {
                    Some(SinkKind::Files(kind)) => {
                        let around = Around { data, template_check };
                        into.sinks.push(sink::read(name, &mut section, kind, &around));
                    }
                    Some(SinkKind::Live(kind)) => {
                        into.stages.extend(live::read(name, &mut section, kind).map(Stage::Live));
                    }
                    None => {}
                }
            }
            _ => into.runs.push(run::read(name, &mut section)),
        }
    }

    fn refuse_unknown_top(&mut self, root: &dyn TableLike) {
        let known: Vec<&str> = keys::TOP.keys.iter().map(|key| key.name).chain(SECTIONS).chain([PAGE, HOSTS]).collect();
        for (name, item) in root.iter().filter(|(name, _)| !known.contains(name)) {
            if self.mistakes.is_full() {
                self.mistakes.has_more = true;
                return;
            }
            let line = root.key(name).and_then(|key| key.span()).map_or(1, |span| self.page.line(span.start));
            let is_section = item.is_table_like() || item.is_array_of_tables();
            let what = format!("unknown {} `{}`", if is_section { "section" } else { "key" }, shortened(name));
            let (cause, hint) = if let Some(near) = nearest(name, known.iter().copied()) {
                (
                    String::new(),
                    if [PAGE, HOSTS].contains(&near) {
                        format!("did you mean `[{near}]`?")
                    } else if SECTIONS.contains(&near) {
                        format!("did you mean `[{near}.NAME]`?")
                    } else {
                        format!("did you mean `{near}`?")
                    },
                )
            } else if let Some(place) = owner_of(self.registry, name) {
                (String::new(), format!("`{name}` belongs to {place}"))
            } else {
                (
                    String::new(),
                    "known keys: instrument, data, group, [source.NAME], [merge.NAME], [worker.NAME], [sink.NAME], \
                     [run.NAME], [web], [hosts], [host.NAME], [mirror.NAME]"
                        .to_owned(),
                )
            };
            self.mistakes.push(self.page.mistake(line, what, cause, hint));
        }
    }
}

/// The kind that a section names, and a mistake where there is none of that name.
fn kind_of<K: Copy>(
    section: &mut Section<'_>,
    key: &'static Key,
    kinds: &[K],
    name: fn(&K) -> &'static str,
) -> Option<K> {
    let word: Setting<String> = section.get(key)?;
    if let Some(kind) = kinds.iter().find(|kind| name(kind) == *word) {
        return Some(*kind);
    }
    let names: Vec<&str> = kinds.iter().map(name).collect();
    section.refuse(key, settings::unknown_word(&word, names));
    None
}

/// Returns the title of the section or table that has a key of this name; none for an unknown key.
fn owner_of(registry: &Registry, name: &str) -> Option<String> {
    let has = |keys: &[&'static Key]| keys.iter().any(|key| key.name == name);
    let (first, rest) = keys::TABLES.split_at(2);
    let table = |tables: &[&Table]| tables.iter().find(|table| has(table.keys)).map(|table| table.title.to_owned());
    let source = || registry.sources().iter().find(|kind| has(kind.keys)).map(|kind| source_title(kind.name));
    let sink = || registry.sinks().iter().find(|kind| has(kind.keys())).map(|kind| sink_title(kind.name()));
    let more = || registry.sources().iter().find_map(|kind| (kind.more?.owner)(name));
    let worker = || registry.workers().iter().find(|kind| has(kind.keys)).map(|kind| worker_title(kind.name));
    let page = || has(&web::KEYS).then(|| format!("[{PAGE}]"));
    let carrier = || registry.carriers().iter().any(|kind| has(kind.keys)).then(|| format!("[{HOSTS}]"));
    let host = || registry.carriers().iter().find(|kind| has(kind.host_keys)).map(|kind| host_title(kind.name));
    table(first)
        .or_else(source)
        .or_else(|| table(rest))
        .or_else(sink)
        .or_else(more)
        .or_else(worker)
        .or_else(page)
        .or_else(carrier)
        .or_else(host)
}

fn host_title(carrier: &str) -> String {
    format!("[host.NAME], carrier = \"{carrier}\"")
}

fn source_title(kind: &str) -> String {
    format!("[source.NAME], kind = \"{kind}\"")
}

fn sink_title(kind: &str) -> String {
    format!("[sink.NAME], kind = \"{kind}\"")
}

fn worker_title(call: &str) -> String {
    format!("[worker.NAME.parameters], call = \"{call}\"")
}

/// Names of streams that beamport itself keeps in the data folder, of the folder of files beside them, and of the sink
/// that sends streams to other hosts.
const RESERVED: [&str; 5] = ["runs", "control", "status", "files", hosts::SINK];

fn check_section_name(kind: &str, name: &str) -> Result<(), Refused> {
    match kind {
        "run" if is_run_name(name) => Ok(()),
        "run" => Err(wrong_run_name(name)),
        _ if RESERVED.contains(&name) => {
            Err(Refused::new(format!("`{name}` is reserved"), format!("write another name, like `{name}-1`")))
        }
        _ if is_stream_name(name) => Ok(()),
        _ => Err(wrong_name(name)),
    }
}

/// The tables of `docs/reference/instrument-file.md`: one for each place, with those of each kind behind their sections,
/// then what kinds add.
#[must_use]
pub fn reference(registry: &Registry) -> String {
    let table = |title: &str, keys: &[&Key]| format!("## {title}\n\n{}\n", settings::reference(keys));
    let mut page = String::new();
    for part in keys::TABLES {
        page += &table(part.title, part.keys);
        if std::ptr::eq(part, &keys::SOURCE) {
            let rows = registry.sources().iter().map(|kind| (kind.name, kind.about));
            page += &kinds("sources", rows);
            page.extend(registry.sources().iter().map(|kind| table(&source_title(kind.name), kind.keys)));
        }
        if std::ptr::eq(part, &keys::SINK) {
            page += &kinds("sinks", registry.sinks().iter().map(|kind| (kind.name(), kind.about())));
            page.extend(registry.sinks().iter().map(|kind| table(&sink_title(kind.name()), kind.keys())));
        }
    }
    page += &table(&format!("[{PAGE}]"), &web::KEYS);
    let carriers = registry.carriers();
    page += &kinds("carriers", carriers.iter().map(|kind| (kind.name, kind.about)));
    page.extend(carriers.iter().map(|kind| table(&format!("[{HOSTS}], carrier = \"{}\"", kind.name), kind.keys)));
    let of_hosts = carriers.iter().filter(|kind| !kind.host_keys.is_empty());
    page.extend(of_hosts.map(|kind| table(&host_title(kind.name), kind.host_keys)));
    let more: Vec<String> =
        registry.sources().iter().filter_map(|kind| kind.more).map(|more| (more.reference)()).collect();
    page + &more.join("\n")
}

/// The tables of `docs/reference/workers.md`: one for each ready-made worker.
#[must_use]
pub fn workers_reference(registry: &Registry) -> String {
    let part = |kind: &&WorkerKind| {
        let table = if kind.keys.is_empty() { String::new() } else { settings::reference(kind.keys) + "\n" };
        format!("## {}\n\n{}\n\n{table}{}", kind.name, kind.about, kind.notes)
    };
    registry.workers().iter().map(part).collect::<Vec<_>>().join("\n")
}

/// A table of kinds.
fn kinds<'a>(of: &str, rows: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let rows: String = rows.map(|(name, about)| format!("| `{name}` | {about} |\n")).collect();
    format!("## Kinds of {of}\n\n| kind | what it is |\n|---|---|\n{rows}\n")
}

#[cfg(test)]
mod tests;
