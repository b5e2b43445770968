//! Frames of a camera from files: numpy arrays and plain numbers, one frame behind the other.
//!
//! Opening and mapping is the program's business; here a file is [`Bytes`]. A numpy file of two dimensions or fewer is
//! one frame, of more a stack of them, unless `shape` says what a frame is. Plain files hold whole frames of `shape`
//! and `dtype` and nothing else. All files of a camera have frames of one form.

use super::Form;
use super::npy;
use crate::limits;
use crate::plan::{Bytes, Config, Recording};
use flow::Fault;
use std::fmt;
use std::sync::Arc;

/// The frames of one file.
struct Stack {
    bytes: Arc<dyn Bytes>,
    /// First byte of its first frame.
    at: u64,
    /// Number of its first frame among all.
    first: u64,
}

/// The frames of all files.
pub(super) struct Recorded {
    stacks: Vec<Stack>,
    size: u64,
    frames: u64,
}

impl Recorded {
    /// Looks at all files; no pixel is read.
    pub(super) fn new(config: &Config) -> Result<(Form, Self), Fault> {
        if config.files.len() > limits::FILES_MAX {
            let cause = format!("{} are more than {}", config.files.len(), limits::FILES_MAX);
            return Err(Fault::new("cannot open `files` of model `camera`", cause).hint("join them in one file"));
        }
        let mut all: Option<(Form, Self)> = None;
        for file in &config.files {
            let (form, at, frames) = inspect(config, file)?;
            let size = form.bytes()? as u64;
            let (known, recorded) =
                all.get_or_insert_with(|| (form.clone(), Self { stacks: Vec::new(), size, frames: 0 }));
            if *known != form {
                let cause = format!("its frames are {form}, but those of {} are {known}", config.files[0].name);
                return Err(refused(file, cause).hint("write a source for each"));
            }
            recorded.stacks.push(Stack { bytes: file.bytes.clone(), at, first: recorded.frames });
            recorded.frames += frames;
        }
        all.ok_or_else(|| Fault::new("`files` of model `camera` is empty", ""))
    }

    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// The pixels of one of the frames.
    pub(super) fn pixels(&self, number: u64) -> Result<&[u8], Fault> {
        let behind = self.stacks.partition_point(|stack| stack.first <= number);
        match behind.checked_sub(1).and_then(|at| self.stacks.get(at)) {
            Some(stack) => stack.bytes.bytes(stack.at + (number - stack.first) * self.size, self.size),
            None => Ok(&[]),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {}", self.shape, self.dtype.name())
    }
}

fn refused(file: &Recording, cause: impl fmt::Display) -> Fault {
    Fault::new(format!("{} has no frames for model `camera`", file.name), cause)
}

/// What a file holds: the form of its frames, its first byte of pixels, and how many frames there are.
fn inspect(config: &Config, file: &Recording) -> Result<(Form, u64, u64), Fault> {
    let length = file.bytes.len();
    let head = file.bytes.bytes(0, length.min(npy::HEADER_BYTES_MAX as u64))?;
    let array = npy::read(head).map_err(|e| refused(file, e.cause).hint(e.hint))?;
    let Some(array) = array else {
        let (Some(shape), Some(dtype)) = (config.shape.clone(), config.dtype) else {
            let fault = refused(file, "it is not a numpy file, and its type is unknown");
            return Err(fault.hint("write `shape` and `dtype` of its frames"));
        };
        let form = Form { shape, dtype };
        let size = form.bytes()? as u64;
        if length < size || !length.is_multiple_of(size) {
            return Err(refused(file, format!("{length} bytes are not a multiple of {size}, {form}")));
        }
        return Ok((form, 0, length / size));
    };
    if config.dtype.is_some_and(|dtype| dtype != array.dtype) {
        return Err(refused(file, format!("its numbers are {}", array.dtype.name())).hint("remove `dtype`"));
    }
    let is_stack = match &config.shape {
        Some(shape) if *shape == array.shape => false,
        Some(shape) if array.shape.split_first().is_some_and(|(_, frame)| frame == shape) => true,
        Some(_) => return Err(refused(file, format!("its shape is {:?}", array.shape)).hint("remove `shape`")),
        None => array.shape.len() > 2,
    };
    let (frames, shape) = match array.shape.split_first() {
        Some((count, shape)) if is_stack => (*count, shape.to_vec()),
        _ => (1, array.shape.clone()),
    };
    let form = Form { shape, dtype: array.dtype };
    let needed = (form.bytes()? as u64).checked_mul(frames).and_then(|bytes| bytes.checked_add(array.at));
    if frames == 0 || needed.is_none_or(|needed| needed > length) {
        return Err(refused(file, format!("it ends before its {frames} frames of {form}")));
    }
    Ok((form, array.at, frames))
}
