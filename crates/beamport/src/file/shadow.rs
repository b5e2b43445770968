//! Shadows: workers that take from another what they do not say. Decision 0014.

use super::keys;
use super::worker::SHARES;
use super::{Instrument, Origin, Stage, nearest};
use serde_json::Value as Json;
use settings::Key;
use settings::Page;
use settings::shortened;
use settings::{Mistakes, Setting, Shown, Take as _};

/// Notes what is wrong with shadows, and fills in what they take from the workers that they run beside.
pub(super) fn resolve(page: &Page, mistakes: &mut Mistakes, has_holes: bool, instrument: &mut Instrument) {
    for at in 0..instrument.stages.len() {
        let (above, rest) = instrument.stages.split_at_mut(at);
        let Some(Stage::Worker(new)) = rest.first_mut() else { continue };
        let Some(shadow) = new.shadow.clone() else { continue };
        let name = shortened(&shadow);
        let title = format!("worker `{}`", shortened(&new.name));
        let what = format!("{title} runs beside `{name}`");
        let line = shadow.line_or(new.line);
        let mut say = |cause: &str, hint: String| mistakes.push(page.mistake(line, &*what, cause, hint));
        let workers = || above.iter().filter_map(Stage::worker);
        let Some(old) = workers().find(|worker| worker.name == shadow.value) else {
            if !has_holes {
                let names = || workers().map(|worker| worker.name.as_str());
                let hint = match (nearest(&shadow, names()), names().next()) {
                    (Some(near), _) => format!("did you mean `{near}`?"),
                    (None, Some(_)) => {
                        format!("workers above are {}", shortened(&names().collect::<Vec<_>>().join(", ")))
                    }
                    (None, None) => "name a worker, and move the shadow below it".to_owned(),
                };
                say("no worker of this name above", hint);
            }
            continue;
        };
        if let Some(first) = &old.shadow {
            say("that worker is itself a shadow", format!("write `shadow = \"{}\"`", shortened(first)));
            continue;
        }
        if old.is_whole() {
            say(
                "its state between messages cannot be passed to other code",
                "start the new worker without `shadow`".into(),
            );
            continue;
        }
        let alone = new.alone(&new.parameters.0.clone());
        let is_alone = alone.filter(|_| old.inputs.len() > 1);
        if let Some(why) = is_alone {
            say(why, format!("`{name}` has several inputs: merge them first, `[merge.NAME]`"));
        }
        let shown = &mut new.shown;
        // They are not shown: what is shown can be read again.
        new.inputs = Setting::by_default(old.inputs.value.clone());
        if alone.is_none() {
            takes(&mut new.slots, &old.slots, (&keys::SLOTS, old.slots.show()), shown);
            takes(&mut new.set, &old.set, (&keys::SET, old.set.show()), shown);
        }
        let share = SHARES.iter().find(|(_, share)| *share == old.share.value).map_or("", |(word, _)| *word);
        takes(&mut new.share, &old.share, (&keys::SHARE, share.into()), shown);
        takes(&mut new.turn, &old.turn, (&keys::TURN, old.turn.show()), shown);
        takes(&mut new.order, &old.order, (&keys::ORDER, old.order.show()), shown);
        takes(&mut new.time_max, &old.time_max, (&keys::TIME_MAX, old.time_max.show()), shown);
        if let (None, Some(first)) = (&new.first_time_max, &old.first_time_max) {
            new.first_time_max = Some(Setting::by_default(first.value));
        }
        if let (None, Some(python)) = (&new.python, &old.python) {
            let value = python.value.display().to_string().into();
            shown.push(Shown { key: keys::PYTHON.name.into(), value, origin: Origin::Default });
            new.python = Some(Setting::by_default(python.value.clone()));
        }
        if new.set.value > new.slots.value {
            let cause = format!("{} slots cannot get the same messages: `slots` is {}", new.set.value, new.slots.value);
            say(&cause, "write `slots`, a multiple of `set`".into());
        }
    }
}

/// Copies a setting of the other worker where the section does not have its own.
fn takes<T: Clone>(own: &mut Setting<T>, other: &Setting<T>, (key, value): (&Key, Json), shown: &mut [Shown]) {
    if own.origin != Origin::Default {
        return;
    }
    own.value = other.value.clone();
    shown.iter_mut().filter(|shown| shown.key == key.name).for_each(|shown| shown.value = value.clone());
}
