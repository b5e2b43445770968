//! A file that an earlier process left, open again as its last commit has it.
//!
//! 1. A sort that was begun is finished: until then rows are in the file twice, or not at all.
//! 2. The chunk trees are repaired and the file is marked as not finished.
//! 3. Rows of each module that the commit does not have are cut off.
//! 4. The file is opened for writing, and the links to growing datasets are listed.
//!
//! Constraint: a step opens the file for itself. libhdf5 keeps in its caches what it read, and the next step works past
//! these.
//!
//! Failure: a [`Fault`] says why the file cannot be resumed; it must then be recreated. A step that was killed is done
//! again by the next process.

use super::job::Job;
use super::layout::{Links, growing_links, reopen};
use crate::hdf::h5::File;
use crate::hdf::handle::FileHandle;
use crate::hdf::metadata::Apply;
use crate::hdf::{chunk_tree, write_metadata};
use crate::module::Filling;
use crate::read::search;
use crate::sort;
use flow::Fault;
use serde_json::{Value, json};

/// Version of the state of a commit.
const STATE_VERSION: u64 = 1;

/// A resumed file.
pub(super) struct Resumed {
    pub(super) file: File,
    pub(super) handle: FileHandle,
    /// One for each module of the template, in order.
    pub(super) fillings: Vec<Filling>,
    /// Links to growing datasets.
    pub(super) links: Links,
}

impl Resumed {
    /// Opens the file of a job as the commit with this state has it.
    pub(super) fn open(job: &Job, state: &str) -> Result<Self, Fault> {
        job.check_inputs()?;
        let state = checked(job, state)?;
        finish_sort(job)?;
        repair_trees(job)?;
        cut(job, &state)?;
        // Opened again: libhdf5 has moved rows in its caches, and the writer works past these.
        let file = File::open(&job.file, true)?;
        let handle = FileHandle::open(&job.file)?;
        let fillings = fillings(job, &file, &handle, &state)?;
        let links = growing_links(&job.template, &fillings);
        Ok(Self { file, handle, fillings, links })
    }
}

/// Returns the state of a commit, for [`Resumed::open`].
pub(super) fn state(job: &Job, fillings: &[Filling]) -> String {
    let modules: Vec<Value> = fillings.iter().map(Filling::state).collect();
    json!({"version": STATE_VERSION, "template": job.template.digest, "modules": modules}).to_string()
}

/// Returns the state as JSON, if it is of this version and this template.
fn checked(job: &Job, state: &str) -> Result<Value, Fault> {
    let state: Value = serde_json::from_str(state).map_err(|e| refused(job, &e.to_string()))?;
    if state["version"] != STATE_VERSION {
        return Err(refused(job, "its state is of another version"));
    }
    if state["template"] != job.template.digest.as_str() {
        return Err(refused(job, "the template is not the one it began with"));
    }
    Ok(state)
}

/// Applies the chunks of a sort that an earlier process began.
fn finish_sort(job: &Job) -> Result<(), Fault> {
    if sort::is_begun(&job.file) {
        let file = File::open(&job.file, true)?;
        sort::redo(&job.file, &file, &mut FileHandle::open(&job.file)?)?;
        file.close()?;
    }
    Ok(())
}

/// Repairs the chunk tree of each dataset, before libhdf5 reads it.
fn repair_trees(job: &Job) -> Result<(), Fault> {
    let file = File::open(&job.file, false)?;
    let headers = search::headers(&file)?;
    file.close()?;
    let mut handle = FileHandle::open(&job.file)?;
    headers.into_iter().try_for_each(|header| chunk_tree::mend(&mut handle, header).map(drop))
}

/// Marks the file as not finished, and cuts off the rows of each module that the commit does not have.
fn cut(job: &Job, state: &Value) -> Result<(), Fault> {
    let file = File::open(&job.file, true)?;
    let mut handle = FileHandle::open(&job.file)?;
    reopen(&file, &mut handle, &job.template)?;
    // Dropped before the file is closed: each column has an open dataset.
    for filling in &mut fillings(job, &file, &handle, state)? {
        filling.columns.iter_mut().try_for_each(|column| column.cut(&mut handle))?;
    }
    write_metadata(&file, &mut handle, Apply::Cut)?;
    file.close()
}

/// Returns the filling of each module, with the rows of the commit.
fn fillings(job: &Job, file: &File, handle: &FileHandle, state: &Value) -> Result<Vec<Filling>, Fault> {
    let modules = job.template.modules();
    let states = state["modules"].as_array().map(Vec::as_slice).unwrap_or_default();
    if states.len() != modules.len() {
        return Err(refused(job, "its state is of another template"));
    }
    let one = |((path, module), state): ((String, _), _)| Filling::resume(file, handle, &path, module, state);
    modules.into_iter().zip(states).map(one).collect()
}

fn refused(job: &Job, cause: &str) -> Fault {
    Fault::new(format!("{} cannot be gone on with", job.file.display()), cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nexus;
    use crate::template::Template;
    use crate::tests::whole::folder;
    use crate::tests::whole::messages::{give, job, second, value};
    use flow::Sink;

    /// Rows of each column, module by module.
    fn rows(resumed: &Resumed) -> Vec<Vec<u64>> {
        resumed.fillings.iter().map(|filling| filling.columns.iter().map(|column| column.rows()).collect()).collect()
    }

    #[test]
    fn a_file_is_opened_with_the_rows_and_links_of_its_commit() {
        let folder = folder("resumed");
        let job = job(&folder.join("resumed.nxs"));
        let mut sink = Nexus::begin(job.clone(), true).unwrap();
        second(&mut sink, 0, 100).unwrap();
        let commit = sink.flush().unwrap();
        second(&mut sink, 1, 100).unwrap();
        give(&mut sink, 2, 100, &[value(2_000)]).unwrap();
        let later = sink.flush().unwrap();
        drop(sink);
        assert_ne!(commit, later);
        let events = |file: &File| file.open_growing("/entry/instrument/detector/events/event_id").unwrap().1[0];
        let file = File::open(&job.file, false).unwrap();
        assert_eq!(events(&file), 2 * 14 * 100);
        file.close().unwrap();

        let mut resumed = Resumed::open(&job, &commit).unwrap();
        assert_eq!(state(&job, &resumed.fillings), commit);
        assert_eq!(events(&resumed.file), 14 * 100, "rows after the commit are in the file");
        assert_eq!(resumed.links, [("/entry/sample/temperature/value".to_owned(), "/entry/values".to_owned())]);
        let first = rows(&resumed);
        resumed.fillings.clear();
        resumed.file.close().unwrap();
        // A process that was killed now is followed by another one.
        let again = Resumed::open(&job, &commit).unwrap();
        assert_eq!(rows(&again), first);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_state_of_another_file_is_refused_with_its_cause() {
        let folder = folder("refused");
        let mut job = job(&folder.join("refused.nxs"));
        let mut sink = Nexus::begin(job.clone(), true).unwrap();
        let commit = sink.flush().unwrap();
        drop(sink);
        let cause = |job: &Job, state: &str| Resumed::open(job, state).err().unwrap().cause;
        assert_eq!(cause(&job, &commit.replace("\"version\":1", "\"version\":0")), "its state is of another version");
        let few = json!({"version": STATE_VERSION, "template": job.template.digest, "modules": []});
        assert_eq!(cause(&job, &few.to_string()), "its state is of another template");
        job.template = Template::parse(br#"{"children": []}"#).unwrap();
        assert_eq!(cause(&job, &commit), "the template is not the one it began with");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
