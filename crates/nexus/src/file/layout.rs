//! What a file holds before the first message, and at its end: groups, fixed datasets, links, empty columns.

use super::job::Job;
use crate::clock;
use crate::hdf::h5::{self, File, To};
use crate::hdf::handle::FileHandle;
use crate::hdf::metadata::{Apply, lock};
use crate::hdf::write_metadata;
use crate::limits::HELD_BYTES_MAX;
use crate::module::Filling;
use crate::static_file::{Source, copy_attributes, copy_object};
use crate::template::{Data, Group, Node, Template};
use flow::Fault;

/// Links to growing datasets: target, link.
pub(crate) type Links = Vec<(String, String)>;

/// Lays out a file: writes what the template has from the beginning.
pub(crate) struct FileLayout<'a> {
    pub(crate) file: &'a File,
    pub(crate) handle: &'a mut FileHandle,
    pub(crate) fillings: Vec<Filling>,
    pub(crate) links: Links,
    pub(crate) job: &'a Job,
    /// The static file that the file begins with a copy of.
    pub(crate) of_static: Option<&'a Source>,
    /// A part of the static file could not be copied.
    pub(crate) is_damaged: bool,
}

impl FileLayout<'_> {
    pub(crate) fn root(&mut self) -> Result<(), Fault> {
        let job = self.job;
        self.attributes_of_static(&job.template.root, "")?;
        let name = job.file.file_name().unwrap_or_default().to_string_lossy().replace('\0', "");
        let entry = job.template.entry();
        let mut attributes = vec![
            ("NX_class", "NXroot".to_owned()),
            ("file_name", name),
            ("file_time", job.template.time_text(clock::now())),
            ("creator", format!("beamport {}", env!("CARGO_PKG_VERSION"))),
            ("HDF5_Version", h5::version()),
            ("beamport_run", job.run_id.clone()),
            ("beamport_template", job.template.digest.clone()),
        ];
        if let Some(entry) = entry.strip_prefix('/') {
            attributes.push(("default", entry.to_owned()));
        }
        for (name, value) in attributes {
            self.file.set_attribute("", name, &Data::text(value))?;
        }
        self.inside(&job.template.root, "")?;
        let collection = format!("{entry}/beamport");
        self.file.make_group(&collection)?;
        self.file.set_attribute(&collection, "NX_class", &Data::text("NXcollection"))?;
        let metadata = job.metadata.replace('\0', "");
        for (name, value) in [("run", job.run.as_str()), ("run_id", &job.run_id), ("metadata", &metadata)] {
            let value = Data::text(value.replace('\0', ""));
            self.file.write_dataset(&format!("{collection}/{name}"), &value)?;
        }
        write_state(self.file, &job.template, WRITING)?;
        // Links last: everything they name is there.
        self.links(&job.template.root, "")?;
        self.links = growing_links(&job.template, &self.fillings);
        Ok(())
    }

    fn inside(&mut self, group: &Group, path: &str) -> Result<(), Fault> {
        for attribute in &group.attributes {
            self.file.set_attribute(path, &attribute.name, &attribute.value)?;
        }
        for node in &group.children {
            self.make_room()?;
            match node {
                Node::Group(inner) => {
                    let inner_path = format!("{path}/{}", inner.name);
                    self.file.make_group(&inner_path)?;
                    self.attributes_of_static(inner, &inner_path)?;
                    self.inside(inner, &inner_path)?;
                }
                Node::Static { name } => {
                    let path = format!("{path}/{name}");
                    self.copied(|from, to| copy_object(from, &path, to, &path))?;
                }
                Node::Soft { name, target } => self.file.link(To::Path(target), &format!("{path}/{name}"))?,
                Node::Dataset { name, value, attributes, compression } => {
                    let path = format!("{path}/{name}");
                    match compression {
                        Some(filter) => self.file.write_packed(&path, value, *filter)?,
                        None => self.file.write_dataset(&path, value)?,
                    }
                    for attribute in attributes {
                        self.file.set_attribute(&path, &attribute.name, &attribute.value)?;
                    }
                }
                Node::Times { start: true, .. } => {
                    let start = Data::text(self.job.template.time_text(self.job.start));
                    self.file.write_dataset(&format!("{path}/start_time"), &start)?;
                }
                Node::Module(module) => {
                    for (path, value, attributes) in module.plan.fixed(path) {
                        write_fixed(self.file, &path, &value, &attributes)?;
                    }
                    self.fillings.push(Filling::make(self.file, path, module)?);
                }
                Node::Times { .. } | Node::Link { .. } | Node::Outside { .. } => (),
            }
        }
        Ok(())
    }

    fn attributes_of_static(&mut self, group: &Group, path: &str) -> Result<(), Fault> {
        if group.from_static.is_none() {
            return Ok(());
        }
        self.copied(|from, to| copy_attributes(from, path, to))
    }

    fn copied(&mut self, copy: impl FnOnce(&Source, &File) -> Result<(), Fault>) -> Result<(), Fault> {
        let Some(from) = self.of_static else { return Ok(()) };
        let answer = copy(from, self.file);
        self.is_damaged |= answer.is_err();
        answer.map_err(|fault| from.said(fault))
    }

    /// Writes what waits in memory before it is much.
    fn make_room(&mut self) -> Result<(), Fault> {
        match self.file.held() {
            Some(held) if lock(&held).held_bytes() > HELD_BYTES_MAX => lock(&held).apply(self.handle, Apply::Grown),
            _ => Ok(()),
        }
    }

    fn links(&mut self, group: &Group, path: &str) -> Result<(), Fault> {
        for node in &group.children {
            match node {
                Node::Group(inner) => self.links(inner, &format!("{path}/{}", inner.name))?,
                Node::Link { name, target, .. } => {
                    let target: String = target.iter().map(|s| format!("/{s}")).collect();
                    // A dataset that is written at the end only (`end_time`, `minimum_value`) is linked by its path.
                    let to = if self.file.exists(&target)? { To::Thing(&target) } else { To::Path(&target) };
                    self.file.link(to, &format!("{path}/{name}"))?;
                }
                Node::Outside { name, file, target } => {
                    self.file.link(To::File(file, target), &format!("{path}/{name}"))?;
                }
                _ => (),
            }
        }
        Ok(())
    }
}

/// State of a file that is not finished. A reader can open it all the same: this tells one that comes early.
const WRITING: &str = "writing";

/// Says in `beamport/state` how far a file is.
fn write_state(file: &File, template: &Template, state: &str) -> Result<(), Fault> {
    file.write_dataset(&format!("{}/beamport/state", template.entry()), &Data::text(state.to_owned()))
}

/// Says that a file is not finished: it may have been, before the commit that would say so.
pub(crate) fn reopen(file: &File, handle: &mut FileHandle, template: &Template) -> Result<(), Fault> {
    write_state(file, template, WRITING)?;
    write_metadata(file, handle, Apply::Grown)
}

/// Says that a file is complete: what there was of its run at the time of `snapshot`, or all of it.
pub(crate) fn write_end(file: &File, template: &Template, snapshot: Option<i64>) -> Result<(), Fault> {
    if let Some(time) = snapshot {
        file.set_attribute("", "beamport_snapshot", &Data::text(clock::iso8601(time)))?;
    }
    write_state(file, template, if snapshot.is_some() { "snapshot" } else { "complete" })
}

pub(crate) fn write_fixed(
    file: &File,
    path: &str,
    value: &Data,
    attributes: &[(&'static str, Data)],
) -> Result<(), Fault> {
    file.write_dataset(path, value)?;
    attributes.iter().try_for_each(|(name, value)| file.set_attribute(path, name, value))
}

/// Links whose target is a dataset that grows: it may be recreated once.
pub(crate) fn growing_links(template: &Template, fillings: &[Filling]) -> Links {
    fn walk(group: &Group, path: &str, out: &mut Vec<(String, String)>) {
        for node in &group.children {
            match node {
                Node::Group(inner) => walk(inner, &format!("{path}/{}", inner.name), out),
                Node::Link { name, target, .. } => {
                    out.push((target.iter().map(|s| format!("/{s}")).collect(), format!("{path}/{name}")));
                }
                _ => (),
            }
        }
    }
    let mut out = Vec::new();
    walk(&template.root, "", &mut out);
    let growing: std::collections::HashSet<&str> =
        fillings.iter().flat_map(|f| &f.columns).map(|c| c.design.path.as_str()).collect();
    out.retain(|(target, _)| growing.contains(target.as_str()));
    out
}

/// Paths of the `end_time`s.
pub(crate) fn end_times(template: &Template) -> Vec<String> {
    fn walk(group: &Group, path: &str, out: &mut Vec<String>) {
        for node in &group.children {
            match node {
                Node::Group(inner) => walk(inner, &format!("{path}/{}", inner.name), out),
                Node::Times { end: true, .. } => out.push(format!("{path}/end_time")),
                _ => (),
            }
        }
    }
    let mut out = Vec::new();
    walk(&template.root, "", &mut out);
    out
}
