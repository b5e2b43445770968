//! Forecast of what the retention rules in an instrument file will delete of the messages already kept.
//!
//! A typing error in `retain`, `retain_age` or `keep_free` deletes history as soon as the stream is written. So a
//! `keep_free` that the disk does not have is a mistake, and `up` reports what a changed rule deletes before it starts.
//! A rule that was in the file at the start before has done its work, and is not reported.
//!
//! Figures are estimates: whole segments go, and bytes of old messages are those of the average message.

use crate::figures::{bytes, percent};
use crate::file::{Instrument, Mistake, Severity, Stage, StreamSection};
use crate::room;
use flow::{Data, Fault};
use settings::shortened;
use settings::units::{Size, size_text};
use std::path::Path;
use store::{Level, Reader};
use toml_edit::DocumentMut;

/// A deletion in one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The stream.
    pub stream: String,
    /// The key that deletes most.
    pub key: &'static str,
    /// Bytes that are deleted.
    pub bytes: u64,
    /// Bytes that are kept now.
    pub kept: u64,
}

impl Deletion {
    /// More than half of what is kept goes.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.bytes > self.kept / 2
    }

    /// As a sentence.
    #[must_use]
    pub fn text(&self) -> String {
        let share = percent(self.bytes as f64 / self.kept.max(1) as f64);
        let Self { stream, key, .. } = self;
        let (gone, kept) = (bytes(self.bytes), bytes(self.kept));
        format!("`{key}` of `{stream}` deletes its oldest messages: about {gone} of {kept} ({share})")
    }
}

/// Why the disk cannot leave so much free, where a stream asks for more than it has.
#[must_use]
pub fn beyond_disk(instrument: &Instrument) -> Option<Mistake> {
    let folder = instrument.data.value.as_path();
    let place = folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    let stat = room::statfs(place)?;
    let size = stat.f_blocks * stat.f_bsize as u64;
    let (stage, keep_free) = instrument.stages.iter().find_map(|stage| {
        let keep_free = stage.stream()?.keep_free.as_ref().filter(|keep_free| keep_free.value.0 >= size)?;
        Some((stage, keep_free))
    })?;
    Some(Mistake {
        level: Severity::Error,
        file: instrument.file.display().to_string(),
        line: keep_free.line_or(stage.line()),
        pointer: String::new(),
        what: format!("`keep_free` of `{}` is {}", shortened(stage.name()), size_text(Size(keep_free.value.0))),
        cause: format!("the disk of {} has {} in all: all messages would be deleted", folder.display(), bytes(size)),
        hint: "write a part of the disk, such as `keep_free = \"10 GB\"`".into(),
    })
}

/// Deletions by the rules of an instrument that changed since its last start. `before`: the resolved file of that
/// start.
#[must_use]
pub fn deletions(instrument: &Instrument, before: Option<&str>) -> Vec<Deletion> {
    let data = Data::on_disk(&*instrument.data);
    let document = |text: &str| text.parse::<DocumentMut>().unwrap_or_default();
    let (now, before) = (document(&instrument.show()), before.map(document).unwrap_or_default());
    let changed = |stage: &Stage, key: &str| {
        let value = |of: &DocumentMut| of.get(stage.kind())?.get(stage.name())?.get(key)?.as_value().cloned();
        let text = |of: &DocumentMut| value(of).map(|value| value.decorated("", "").to_string());
        text(&now) != text(&before)
    };
    let of = |stage: &Stage| {
        let section = stage.stream().filter(|section| section.level() == Level::Disk)?;
        let mut reader = data.reader_early(stage.name()).ok()?;
        let kept = room::taken(&data.stream(stage.name()));
        let largest = rules(section, &data, &mut reader, kept);
        let (key, bytes) = largest.into_iter().filter(|(key, _)| changed(stage, key)).max_by_key(|rule| rule.1)?;
        // A segment more or less is kept anyway.
        (bytes > reader.header().segment_bytes).then(|| Deletion { stream: stage.name().to_owned(), key, bytes, kept })
    };
    instrument.stages.iter().filter_map(of).collect()
}

/// The bytes that each rule deletes.
fn rules(section: &StreamSection, data: &Data, reader: &mut Reader, kept: u64) -> Vec<(&'static str, u64)> {
    let mut rules = Vec::new();
    if let Some(retain) = &section.retain {
        rules.push(("retain", kept.saturating_sub(retain.value.0)));
    }
    if let Some(age) = &section.retain_age {
        let age = i64::try_from(age.value.as_nanos()).unwrap_or(i64::MAX);
        let share = older(reader, data.media.now().saturating_sub(age));
        rules.push(("retain_age", (kept as f64 * share) as u64));
    }
    if let Some(keep_free) = &section.keep_free {
        let free = data.media.free(&data.folder).unwrap_or(u64::MAX);
        rules.push(("keep_free", keep_free.value.0.saturating_sub(free).min(kept)));
    }
    rules
}

/// The share of messages that arrived before a time; 0 where it cannot be read.
fn older(reader: &mut Reader, time: i64) -> f64 {
    let bounds = reader.bounds();
    let (mut low, mut high) = (bounds.first, bounds.count);
    while low < high {
        let middle = low + (high - low) / 2;
        match reader.entries(middle, 1).ok().and_then(|entries| entries.first().map(|entry| entry.arrival_time)) {
            Some(arrival) if arrival < time => low = middle + 1,
            Some(_) => high = middle,
            None => return 0.0,
        }
    }
    (low - bounds.first) as f64 / (bounds.count - bounds.first).max(1) as f64
}

/// Says what is deleted; where that is more than half of a stream, it needs a yes: `is_agreed`, or that of `ask`, which
/// has none where nobody can answer.
pub fn agree(
    deletions: &[Deletion],
    file: &Path,
    is_agreed: bool,
    say: &mut dyn FnMut(&str),
    ask: &mut dyn FnMut() -> Option<bool>,
) -> Result<(), Fault> {
    deletions.iter().for_each(|deletion| say(&deletion.text()));
    let Some(large) = deletions.iter().find(|deletion| deletion.is_large()).filter(|_| !is_agreed) else {
        return Ok(());
    };
    let cause = match ask() {
        Some(true) => return Ok(()),
        Some(false) => "nobody agreed to it".to_owned(),
        None => format!("that is more than half of `{}`, and nobody is at a terminal to agree", large.stream),
    };
    let hint = format!("correct `{}`, or delete them with `beamport up {} --yes`", large.key, file.display());
    Err(Fault::new(format!("`{}` of `{}` would delete messages", large.key, large.stream), cause).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use crate::file::{parse, unasked};
    use std::path::PathBuf;
    use std::time::Duration;
    use store::{Meta, Options, SchemaId};

    /// A data folder with a stream `c` of about 8 MB.
    struct Kept(PathBuf);

    impl Kept {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("beamport-retention-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            let mut writer = Data::on_disk(&folder).writer("c", &Options::disk(1 << 20)).unwrap();
            let origin = writer.origin("o").unwrap();
            for origin_seq in 0..80 {
                let meta = Meta { source_time: 0, origin, origin_seq, schema: SchemaId(*b"test"), flags: 0 };
                let sequence = writer.append(&meta, &[1; 100_000]).unwrap();
                assert!(writer.wait(sequence, Level::Disk, Duration::from_secs(60)).unwrap());
            }
            Self(folder)
        }

        fn instrument(&self, keys: &str) -> Instrument {
            let text = format!(
                "instrument = \"a\"\ndata = \"{}\"\n\
                 source.c = {{ kind = \"sim\", model = \"amor-devices\", live = \"1 MiB\"{keys} }}\n",
                self.0.display()
            );
            parse(&text, Path::new("a.toml"), &Registry::builtin(), &unasked).unwrap()
        }
    }

    impl Drop for Kept {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_keep_free_that_the_disk_does_not_have_is_a_mistake() {
        let kept = Kept::new("disk");
        let mistake = beyond_disk(&kept.instrument(", keep_free = \"100000 TB\"")).unwrap();
        assert!(mistake.what.contains("`keep_free` of `c`") && mistake.line == 3, "{mistake}");
        assert!(beyond_disk(&kept.instrument(", keep_free = \"1 MB\"")).is_none());
    }

    #[test]
    fn a_smaller_bound_is_said_beforehand_and_needs_a_yes_where_it_deletes_more_than_half() {
        let kept = Kept::new("bound");
        let deleted = |keys: &str, before: Option<&str>| deletions(&kept.instrument(keys), before);
        assert_eq!(deleted("", None), []);
        let small = deleted(", retain = \"1 MiB\"", None);
        assert!(small.len() == 1 && small[0].key == "retain" && small[0].is_large(), "{small:?}");
        let some = deleted(", retain = \"6 MiB\"", None);
        assert!(some.len() == 1 && !some[0].is_large(), "{some:?}");
        // They are a second old at most.
        assert_eq!(deleted(", retain_age = \"1 h\"", None), []);
        let shown = kept.instrument(", retain = \"1 MiB\"").show();
        assert_eq!(deleted(", retain = \"1 MiB\"", Some(&shown)), [], "it stood there at the start before");
        assert_eq!(deleted(", retain = \"1 MiB\"", Some(&kept.instrument("").show())), small);

        let said = |deletions: &[Deletion], is_agreed: bool, answer: Option<bool>| {
            let mut lines = Vec::new();
            let agreed =
                agree(deletions, Path::new("a.toml"), is_agreed, &mut |line| lines.push(line.to_owned()), &mut || {
                    answer
                });
            (lines.len(), agreed.map_err(|fault| fault.hint))
        };
        assert_eq!(said(&some, false, None), (1, Ok(())));
        assert_eq!(said(&small, true, None), (1, Ok(())));
        assert_eq!(said(&small, false, Some(true)), (1, Ok(())));
        for answer in [None, Some(false)] {
            let (lines, agreed) = said(&small, false, answer);
            assert!(lines == 1 && agreed.unwrap_err().contains("beamport up a.toml --yes"));
        }
    }
}
