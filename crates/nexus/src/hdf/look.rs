//! A hook for tests between any two writes to a file, when it is as a kill would leave it.

use std::cell::RefCell;
use std::path::Path;

pub(crate) type Look = Box<dyn FnMut(&Path)>;

thread_local! {
    static BETWEEN: RefCell<Option<Look>> = const { RefCell::new(None) };
}

/// Sets the hook of this thread; none removes it.
pub(crate) fn set_look(look: Option<Look>) {
    BETWEEN.set(look);
}

/// Called after every write of metadata and begun chunks.
pub(crate) fn look_between(path: &Path) {
    BETWEEN.with_borrow_mut(|look| {
        if let Some(look) = look {
            look(path);
        }
    });
}
