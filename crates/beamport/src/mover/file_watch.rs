//! What the mover works with must stay where it is: streams of its sources, its books, and their live places.
//!
//! A file that somebody removes goes on in our maps, and nobody else sees it any more: readers wait for what is written
//! to no name, and a book that is gone makes finished files unfinished. So the mover looks every second, less often where
//! there are very many streams, and ends with the name of what is gone instead of going on alone.
//!
//! What cannot be looked at is not known to be gone (no descriptor is free, a device does not answer): it is reported as a
//! trouble, and looked at again after a pause that doubles.

use super::stage::StageHandle;
use crate::file::Instrument;
use crate::limits::WATCH_RATIO;
use flow::{Data, Fault, RUNS, commits};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use store::LivePlace;

/// Time between two looks: a few system calls for each stream.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest time between two looks.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The streams as the mover saw them at its last look.
#[derive(Default)]
pub(super) struct FileWatch {
    /// Identity of each stream, and its live place while it has one.
    known: BTreeMap<String, ([u8; 16], Option<LivePlace>)>,
    /// Streams of tasks that were not there at the last look, and may be about to be made.
    remade: BTreeSet<String>,
    looked: Option<Instant>,
    pause: Duration,
    /// Reports what cannot be looked at.
    fault: StageHandle,
}

impl FileWatch {
    /// Looks, if it is time to. An error names what is gone.
    pub(super) fn refresh(&mut self, data: &Data, instrument: &Instrument) -> Result<(), Fault> {
        if self.looked.is_some_and(|looked| looked.elapsed() < self.pause) {
            return Ok(());
        }
        let begun = Instant::now();
        let mut trouble = self.look_at_known(data)?;
        if let Err(fault) = self.look_for_new(data, instrument) {
            trouble.get_or_insert(fault);
        }
        let pause = if trouble.is_none() { begun.elapsed() * WATCH_RATIO } else { self.pause * 2 };
        (self.looked, self.pause) = (Some(begun), pause.clamp(PAUSE, PAUSE_MAX));
        self.fault.set_fault(trouble);
        Ok(())
    }

    /// Looks no longer at the streams of a stage.
    pub(super) fn forget(&mut self, stage: &str) {
        self.known.retain(|name, _| name.split('.').next() != Some(stage));
    }

    /// The fault of what cannot be looked at.
    pub(super) fn trouble(&self) -> Option<Fault> {
        self.fault.trouble()
    }

    /// Why one of the streams cannot be looked at. An error names one that is gone.
    fn look_at_known(&mut self, data: &Data) -> Result<Option<Fault>, Fault> {
        let (mut filed, mut trouble) = (Vec::new(), None);
        for (name, (uuid, place)) in &mut self.known {
            let live = match store::Header::read(data.media.as_ref(), &data.stream(name)) {
                // A worker that is started again makes the stream of its tasks again.
                Ok(header) if header.uuid != *uuid && is_of_tasks(name) => {
                    (*uuid, *place) = (header.uuid, None);
                    self.remade.remove(name);
                    continue;
                }
                Ok(header) if header.uuid != *uuid => {
                    return Err(gone(data, name, "another stream has replaced it"));
                }
                Ok(header) => header.live,
                Err(store::Error::Missing(folder)) => match is_filed(data, name) {
                    Ok(true) => {
                        filed.push(name.clone());
                        continue;
                    }
                    Ok(false) if is_of_tasks(name) && self.remade.insert(name.clone()) => continue,
                    Ok(false) => return Err(gone(data, name, format!("{} was removed", folder.display()))),
                    Err(fault) => {
                        trouble.get_or_insert(fault);
                        continue;
                    }
                },
                Err(e) => {
                    trouble.get_or_insert(flow::stream_fault(name, e));
                    continue;
                }
            };
            match place {
                Some(place) if place.is_there(data.media.as_ref()) => {
                    self.remade.remove(name);
                }
                Some(_) if is_of_tasks(name) && self.remade.insert(name.clone()) => {}
                // A writer that ends takes its live place with it, and one that recovers may make it anew.
                Some(place) if !place.is_given_up() => {
                    return Err(gone(data, name, format!("its shared memory {} was removed", live.display())));
                }
                _ => *place = live_place(data, name),
            }
        }
        self.known.retain(|name, _| !filed.contains(name));
        Ok(trouble)
    }

    fn look_for_new(&mut self, data: &Data, instrument: &Instrument) -> Result<(), Fault> {
        for name in data.streams(true)? {
            if !self.known.contains_key(&name)
                && is_ours(instrument, &name)
                && let Ok(header) = store::Header::read(data.media.as_ref(), &data.stream(&name))
            {
                let place = live_place(data, &name);
                self.known.insert(name, (header.uuid, place));
            }
        }
        Ok(())
    }
}

/// Refuses streams of this instrument that have lost their header, before anything is opened for writing.
pub(super) fn refuse_headless(data: &Data, instrument: &Instrument) -> Result<(), Fault> {
    let folder = &data.folder;
    let names = data.media.list(folder);
    let names = names.map_err(|e| Fault::io(format!("cannot read data folder `{}`", folder.display()), &e))?;
    for name in names.iter().filter(|name| is_ours(instrument, name)) {
        // Any other error is that of the stage that opens the stream.
        if let Err(e @ store::Error::Headless(_)) = store::Header::read(data.media.as_ref(), &data.stream(name)) {
            return Err(flow::stream_fault(name, e));
        }
    }
    Ok(())
}

fn live_place(data: &Data, name: &str) -> Option<LivePlace> {
    LivePlace::open(data.media.as_ref(), &data.stream(name)).ok().flatten()
}

/// True for the streams that this instrument writes, and their books.
fn is_ours(instrument: &Instrument, name: &str) -> bool {
    let stage = name.split('.').next().unwrap_or_default();
    name == RUNS
        || name == "control"
        || instrument.stages.iter().any(|known| known.name().split('.').next() == Some(stage))
        || instrument.sinks.iter().any(|s| s.name == stage)
}

/// True for the stream of a worker's tasks.
fn is_of_tasks(name: &str) -> bool {
    name.ends_with(".tasks")
}

/// True for the book of a run that was removed because the run is in the file.
fn is_filed(data: &Data, name: &str) -> Result<bool, Fault> {
    match name.split('.').collect::<Vec<_>>().as_slice() {
        [sink, run, "commits"] => Ok(commits::last_commit(data, sink, run)?.is_some_and(|c| c.finished)),
        _ => Ok(false),
    }
}

fn gone(data: &Data, name: &str, why: impl std::fmt::Display) -> Fault {
    Fault::new(format!("stream `{name}` was removed while the instrument runs"), why)
        .hint(format!("restart `beamport up`: it creates missing streams in {}", data.folder.display()))
}
