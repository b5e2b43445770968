//! A merge that is opened again, with other inputs.

use super::{MS, Place, WAIT, bank, banks};
use store::Level;

#[test]
fn a_merge_that_is_opened_again_begins_a_new_input_where_it_stands() {
    let mut place = Place::new(1, Level::Memory, banks(Level::Memory, 1));
    place.open().unwrap();
    let begin = place.machine.now();
    for i in 0..40 {
        place.live(10 * MS);
        place.say(0, begin + i * 10 * MS);
    }
    place.live(2 * WAIT);
    let shown = place.shown.len();
    place.kill();
    // It holds a history that was nobody's input then.
    place.banks.push(bank(Level::Memory));
    place.open_bank(1).unwrap();
    for i in 0..40 {
        place.say(1, begin + i * 10 * MS);
    }
    place.open().unwrap();
    let now = place.machine.now();
    place.say(1, now);
    place.say(0, now);
    place.live(2 * WAIT);
    assert_eq!(place.shown.len(), shown + 2);
    assert!(place.aside.is_empty());
    place.end().unwrap();
    place.check(true).unwrap();
}
