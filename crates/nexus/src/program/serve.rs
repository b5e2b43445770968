//! `beamport-nexus write`: the file of one run, from the streams, until the sealed run is in it.
//!
//! The process may be killed at any moment; the next one goes on from the last commit. Without room it waits and tries
//! again, and says so once; the streams keep the data. A file that is only made again (`detached`) ends without room. A
//! failure of libhdf5 ends the process at once ([`Ended::Broken`]): the next one resumes, or begins the file anew where it
//! cannot be opened.

use crate::file::sink::NotMade;
use crate::limits::{FLUSH_PART, FLUSH_PAUSE_MAX, PAUSE_WITHOUT_ACCOUNTS};
use crate::module::user::Module;
use crate::template::Template;
use crate::{Files, Job, Nexus, clock, files};
use flow::hosts::HostState;
use flow::job::{Layout, Snapshot, Word as _, Work, Writer};
use flow::records::Run;
use flow::{Data, Fault, Feed, Sink, WriterJob, ledger};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait for messages that are not there yet: a tenth of what a person notices.
const PAUSE: Duration = Duration::from_millis(10);
/// How long to wait for room on the disk.
const PAUSE_WITHOUT_ROOM: Duration = Duration::from_millis(500);
/// How long a writer that is being killed may keep the stream of commits.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The file or the files to begin or resume.
enum Plan {
    One(Job),
    Many(files::Plan),
}

/// The sink that is being written.
trait Target: Sink {
    /// libhdf5 failed: leave the process without destructors.
    fn is_broken(&self) -> bool;
    /// The last call failed for want of room.
    fn lacks_room(&self) -> bool;
    /// The last call failed for what trying again will not mend.
    fn is_refused(&self) -> bool;
    /// When the run ended.
    fn set_stop(&mut self, stop: i64);
    /// It is what there was of the run at this time.
    fn set_snapshot(&mut self, time: i64);
}

impl Target for Nexus {
    fn is_broken(&self) -> bool {
        Nexus::is_broken(self)
    }
    fn lacks_room(&self) -> bool {
        Nexus::lacks_room(self)
    }
    fn is_refused(&self) -> bool {
        Nexus::is_refused(self)
    }
    fn set_stop(&mut self, stop: i64) {
        Nexus::set_stop(self, stop);
    }
    fn set_snapshot(&mut self, time: i64) {
        Nexus::set_snapshot(self, time);
    }
}

impl Target for Files {
    fn is_broken(&self) -> bool {
        Files::is_broken(self)
    }
    fn lacks_room(&self) -> bool {
        Files::lacks_room(self)
    }
    fn is_refused(&self) -> bool {
        Files::is_refused(self)
    }
    fn set_stop(&mut self, stop: i64) {
        Files::set_stop(self, stop);
    }
    /// Ignored: a request for files of frames waits for the end of the run.
    fn set_snapshot(&mut self, _: i64) {}
}

impl Plan {
    /// The work on a run, by a template that was opened where it needs one.
    fn of(job: &WriterJob, run: &Run, template: Option<Template>) -> Self {
        let run_id = run.id.iter().map(|b| format!("{b:02x}")).collect();
        // Of files of frames these are the streams: a template knows them by names of its own.
        let inputs = job.inputs.iter().map(|stream| job.writer.topic_of(stream).to_owned()).collect();
        let (start, metadata) = (run.start, run.all_metadata().to_string());
        let (run, file) = (run.name.clone(), job.output.clone());
        match &job.work {
            Work::Frames { max, compression } => {
                let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let (frames, compression) = (*max, *compression);
                Plan::Many(files::Plan { folder, name, frames, compression, inputs, run, run_id, start, metadata })
            }
            Work::Template(_) => {
                let template = template.unwrap_or_default();
                Plan::One(Job { file, template, inputs, run, run_id, start, metadata })
            }
        }
    }

    /// How a file of a run begins: what is refused here is refused the next time.
    fn begin(&self, replace: bool) -> Result<Box<dyn Target>, Ended> {
        Ok(match self {
            Plan::One(job) => {
                job.check(replace).map_err(Ended::Permanent)?;
                Box::new(Nexus::lay_out(job.clone(), replace).map_err(|why| match why {
                    NotMade::Never(fault) => Ended::Permanent(fault),
                    why => Ended::Fault(why.fault()),
                })?)
            }
            Plan::Many(plan) => {
                plan.check(replace).map_err(Ended::Permanent)?;
                Box::new(Files::begin(plan.clone(), replace)?)
            }
        })
    }

    fn resume(&self, state: &str) -> Result<Box<dyn Target>, Fault> {
        Ok(match self {
            Plan::One(job) => Box::new(Nexus::resume(job.clone(), state)?),
            Plan::Many(plan) => Box::new(Files::resume(plan.clone(), state)?),
        })
    }

    /// Whether the work may begin again: complete files are not replaced by what retention left in the streams.
    fn may_restart(&self, feed: &Feed) -> bool {
        matches!(self, Plan::One(_)) || feed.has_all()
    }
}

/// How the work ended without its product.
#[derive(Debug)]
pub enum Ended {
    /// Something was wrong from outside.
    Fault(Fault),
    /// Something was wrong that trying again will not mend: the template, or what already has the file's name.
    Permanent(Fault),
    /// The streams no longer hold all that the file needs, and no part of it is wanted.
    Incomplete(Fault),
    /// libhdf5 failed: leave the process without destructors.
    Broken(Fault),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        Ended::Fault(fault)
    }
}

/// Opens the template and keeps this writer's part of it; the error has the first of its mistakes.
fn opened(path: &Path, job: &WriterJob, modules: &[&'static dyn Module]) -> Result<Template, Ended> {
    let Writer { static_file, layout, .. } = &job.writer;
    let mut template = Template::open(path, static_file.as_deref(), modules, *layout).map_err(|mistakes| {
        let first = mistakes.first().map(|m| m.told()).unwrap_or_default();
        let (count, s) = (mistakes.len(), if mistakes.len() == 1 { "" } else { "s" });
        let what = format!("the template {} has {count} mistake{s}", path.display());
        let mut hint = format!("`beamport-nexus check {}", path.display());
        if let Some(file) = static_file {
            hint += &format!(" --static {}", file.display());
        }
        if *layout != Layout::default() {
            hint += &format!(" --layout {}", layout.word());
        }
        hint += "` tells all";
        Ended::Permanent(Fault::new(what, first).hint(hint))
    })?;
    template.share(&job.elsewhere);
    Ok(template)
}

/// Writes the file; the answer is the last line on stdout, and before it a line for each time that there was no room.
/// `alive` says whether the file is still wanted.
pub fn write(job: &WriterJob, modules: &[&'static dyn Module], alive: &dyn Fn() -> bool) -> Result<Value, Ended> {
    // Mistakes of the template are reported before anything of the run is read.
    let template = match &job.work {
        Work::Template(path) => Some(opened(path, job, modules)?),
        Work::Frames { .. } => None,
    };
    let data = Data::on_disk(&job.data);
    let (mut feed, state) = open_feed(&data, job)?;
    feed.hold(job.hold);
    if feed.finished() {
        return Ok(known(&data, job, state.as_deref())?);
    }
    if let Some(Snapshot { time, ends }) = &job.snapshot {
        feed.end_at(ends, *time);
    }
    let plan = Plan::of(job, feed.run(), template);
    // After a restart the next thing is a commit: nobody may go on from the state of the file before.
    let mut anew = false;
    let mut sink = match state {
        // The name of a detached file was taken by who asks for it: an empty file stands there.
        None => plan.begin(job.detached)?,
        Some(state) => match plan.resume(&state) {
            Ok(sink) => sink,
            // The file that has the name now may not be ours.
            Err(why) if job.whole && !feed.has_all() => return Err(Ended::Incomplete(why)),
            Err(why) if !plan.may_restart(&feed) => {
                let why = why.hint("the streams have let go of what the other files hold: move these away first");
                return Err(Ended::Permanent(why));
            }
            Err(why) => {
                tracing::warn!("{}: {}; it is made again from the streams", why.what, why.cause);
                feed.restart()?;
                anew = true;
                plan.begin(true)?
            }
        },
    };
    let (mut flushes, mut unflushed) = (Flushes::every(job.flush), false);
    let mut without_room = false;
    loop {
        if !alive() {
            return Err(Fault::new(format!("the file of run `{}` is not finished", job.run), "beamport is gone").into());
        }
        if anew {
            let done = feed.flush(sink.as_mut(), clock::now());
            anew = tell(done, sink.as_ref(), job, &mut without_room)?.is_none();
            continue;
        }
        let step = feed.step(sink.as_mut());
        let fed = match tell(step, sink.as_ref(), job, &mut without_room)? {
            Some(fed) => fed,
            None => continue,
        };
        if let Some(gap) = feed.gaps().first().filter(|_| job.whole) {
            return Err(incomplete(job, &format!("messages of stream `{}` are lost: {}", gap.stream, gap.reason)));
        }
        if fed.overrun {
            // The end of the run was set to before what is already in the file.
            if job.whole && !feed.has_all() {
                feed.give_up(clock::now())?;
                return Err(incomplete(job, "its stop is before messages that the file has"));
            }
            sink = plan.begin(true)?;
            feed.restart()?;
            anew = true;
            continue;
        }
        unflushed |= fed.messages > 0;
        // The account in the file is that of all hosts; one that is written again has those that came meanwhile.
        let lacks_accounts = fed.complete && !job.detached && job.snapshot.is_none() && {
            let behind = flow::hosts::waits_for(&data, feed.run(), HostState::Sealed)?;
            !behind.is_empty()
        };
        if lacks_accounts {
            std::thread::sleep(PAUSE_WITHOUT_ACCOUNTS);
        } else if fed.complete {
            let finished = finish(&data, job, &mut feed, sink.as_mut());
            match tell(finished, sink.as_ref(), job, &mut without_room)? {
                Some(answer) => return Ok(answer),
                None => continue,
            }
        }
        if unflushed && flushes.is_due(feed.holds_much()) {
            let begun = Instant::now();
            let done = feed.flush(sink.as_mut(), clock::now());
            if tell(done, sink.as_ref(), job, &mut without_room)?.is_some() {
                unflushed = false;
                // Taking messages needs no room; only what is on disk says that there is some.
                if std::mem::take(&mut without_room) {
                    tracing::info!("there is room again");
                    say_trouble(None);
                }
            }
            flushes.done(begun.elapsed());
        }
        if fed.messages == 0 {
            std::thread::sleep(PAUSE);
        }
    }
}

/// A file that would have a part of its run.
fn incomplete(job: &WriterJob, cause: &str) -> Ended {
    // Nobody is to take the part for the file.
    if let Err(e) = std::fs::remove_file(&job.output) {
        tracing::warn!("{}: {e}", job.output.display());
    }
    let fault = Fault::new(format!("the file of run `{}` would not be whole", job.run), cause);
    Ended::Incomplete(fault.hint("begin again from the source, or remove `whole` to have a file of the rest"))
}

/// When the file is flushed. A flush costs time for each dataset that grew: with thousands of logs it comes more rarely, so
/// that it takes at most a tenth of the time.
struct Flushes {
    /// The shortest pause.
    every: Duration,
    /// End of the last flush.
    last: Instant,
    /// Duration of the last flush.
    took: Duration,
}

impl Flushes {
    fn every(every: Duration) -> Self {
        Self { every, last: Instant::now(), took: Duration::ZERO }
    }

    /// Time between the end of the last flush and the next one. `hurry`: the source waits for it, or will soon. History
    /// comes as fast as the stream has room, so that such flushes follow one another; they take at most half of the
    /// time.
    fn pause(&self, hurry: bool) -> Duration {
        match hurry {
            true => self.every.min(self.took),
            false => self.every.max((self.took * FLUSH_PART).min(FLUSH_PAUSE_MAX)),
        }
    }

    fn is_due(&self, hurry: bool) -> bool {
        self.last.elapsed() >= self.pause(hurry)
    }

    fn done(&mut self, took: Duration) {
        (self.last, self.took) = (Instant::now(), took);
    }
}

/// The value, or nothing where the same may work later, or the end.
fn tell<T>(
    answer: Result<T, Fault>,
    sink: &dyn Target,
    job: &WriterJob,
    without_room: &mut bool,
) -> Result<Option<T>, Ended> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(fault) if sink.is_broken() => Err(Ended::Broken(fault)),
        // Somebody waits for this file and for nothing else, and the streams do not run away.
        Err(fault) if sink.lacks_room() && job.detached => {
            Err(Ended::Broken(fault.hint("make room there, or write the file to another disk")))
        }
        Err(fault) if sink.lacks_room() => {
            if !std::mem::replace(without_room, true) {
                tracing::warn!("{}: {}; {}", fault.what, fault.cause, fault.hint);
                say_trouble(Some(&fault));
            }
            std::thread::sleep(PAUSE_WITHOUT_ROOM);
            Ok(None)
        }
        Err(fault) if sink.is_refused() => Err(Ended::Permanent(fault)),
        Err(fault) => Err(fault.into()),
    }
}

/// Says on stdout what holds the file up, or that nothing does any more: who started us shows it.
fn say_trouble(fault: Option<&Fault>) {
    // It may go to the disk that is full: then the line comes with the next one.
    let _ = writeln!(std::io::stdout(), "{}", json!({"trouble": fault.map(Fault::to_json)}));
}

/// Opens the feed; a writer that was just killed may hold the commits a moment longer.
fn open_feed(data: &Data, job: &WriterJob) -> Result<(Feed, Option<String>), Fault> {
    let begun = Instant::now();
    loop {
        let answer = Feed::open(data, &job.sink, &job.run, &job.inputs, !job.detached);
        match answer {
            Err(fault) if fault.cause.contains("another process writes") && begun.elapsed() < LOCK_WAIT => {
                std::thread::sleep(PAUSE);
            }
            answer => return answer,
        }
    }
}

fn finish(data: &Data, job: &WriterJob, feed: &mut Feed, sink: &mut dyn Target) -> Result<Value, Fault> {
    // The commit first: gaps are counted from commits.
    feed.flush(sink, clock::now())?;
    let mut account = feed.account(data, &job.sink)?;
    let mut stop = feed.run().end();
    if let Some(Snapshot { time, .. }) = job.snapshot {
        account.state = "snapshot".into();
        sink.set_snapshot(time);
        stop = stop.min(time);
    }
    let mut account = json!(account);
    account["content"] = json!(feed.content());
    sink.set_stop(stop);
    let mut answer = feed.finish(sink, &account.to_string(), clock::now())?;
    answer["account"] = account;
    if let Some(Snapshot { time, .. }) = job.snapshot {
        answer["snapshot"] = json!(clock::iso8601(time));
    }
    Ok(answer)
}

/// The answer about a file that an earlier process finished.
fn known(data: &Data, job: &WriterJob, state: Option<&str>) -> Result<Value, Fault> {
    let mut answer: Value = state.and_then(|s| serde_json::from_str(s).ok()).unwrap_or_else(|| json!({}));
    answer["account"] = json!(ledger::account(data, &job.run, std::slice::from_ref(&job.sink))?);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_took_all_the_time_where_there_were_many_logs() {
        let ms = Duration::from_millis;
        let mut flushes = Flushes::every(ms(1000));
        let pause = |flushes: &mut Flushes, took| {
            flushes.done(ms(took));
            flushes.pause(false)
        };
        assert_eq!(pause(&mut flushes, 20), ms(1000), "a short flush comes as often as asked");
        assert_eq!(pause(&mut flushes, 400), ms(3600), "a tenth of the time");
        assert_eq!(flushes.pause(true), ms(400), "a source that waits for the flush need not wait longer");
        // Rows are in the file 60 s after they came, also where a flush takes half of that.
        assert!(pause(&mut flushes, 30_000) + ms(30_000) <= Duration::from_secs(60));
        assert_eq!(pause(&mut flushes, 20), ms(1000), "and it comes often again");
    }

    #[test]
    fn a_source_waited_out_the_pause_of_the_file_for_room_in_its_stream() {
        let ms = Duration::from_millis;
        let mut flushes = Flushes::every(ms(1000));
        flushes.done(ms(30));
        assert_eq!(flushes.pause(true), ms(30));
        flushes.done(ms(5000));
        assert_eq!(flushes.pause(true), ms(1000), "never longer than the pause of the file");
    }
}
