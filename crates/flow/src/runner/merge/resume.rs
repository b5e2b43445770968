//! A merge that opens again: compares its last commit with the output.
//!
//! The commit precedes the slice, so the output holds a first part of the slice, possibly none or all of it. Its newest
//! entry identifies the part: it names an input and a sequence, and the order of a slice has no equal elements. The
//! rest is taken again from the inputs, which keep it until it is safe.

use super::{By, Input, Merge, MergeInput, Slice, SliceCommit, Stray, Taken, places_of};
use crate::data::{aside_of, stream_fault};
use crate::merge::plan::{Plan, Share};
use crate::records::{Commit, WAITS};
use crate::{Fault, RunsView};
use store::{Check, Entry, Level, ParentRow, ReadOptions, Reader};
use wire::bprn::State;

/// Where a message stands in the order of a slice: key, number of the input in the commit, sequence.
type Key = (i64, usize, u64);

/// A view as it was found.
struct Found {
    reader: Reader,
    parents: Vec<ParentRow>,
}

impl Found {
    fn open(merge: &Merge, name: &str) -> Result<Self, Fault> {
        let options = ReadOptions { early: true, check: Check::Entries, ..ReadOptions::default() };
        let reader = merge.data.reader(name, options)?;
        let parents = reader.parents().map_err(|e| stream_fault(name, e))?;
        Ok(Self { reader, parents })
    }

    /// The input that an entry points into.
    fn input(parents: &[ParentRow], commit: &Commit, entry: &Entry) -> Option<usize> {
        let row = parents.get(usize::from(entry.parent).checked_sub(1)?)?;
        commit.inputs.iter().position(|i| i.uuid == row.uuid)
    }

    /// An entry, and the input that it points into; none if it is not there or does not verify.
    fn entry(&mut self, commit: &Commit, sequence: u64) -> Option<(Entry, usize)> {
        let Self { reader, parents } = self;
        let entry = *reader.entries(sequence, 1).ok()?.first()?;
        Some((entry, Self::input(parents, commit, &entry)?))
    }

    /// How many entries of a range point into each input, and how many cannot be seen any more.
    fn shown(&mut self, name: &str, commit: &Commit, from: u64, to: u64) -> Result<(Vec<u64>, u64), Fault> {
        let Self { reader, parents } = self;
        let mut shown = vec![0; commit.inputs.len()];
        let mut see = |entries: &[Entry]| {
            for at in entries.iter().filter_map(|e| Self::input(parents, commit, e)) {
                shown[at] += 1;
            }
        };
        let walked = reader.walk(from, to, &mut see).map_err(|e| stream_fault(name, e))?;
        Ok((shown, walked.gone.map_or(0, |(low, high)| high - low) + walked.lost()))
    }
}

impl Merge {
    /// Goes on from the last commit: finishes its slice, and knows again what waits behind it.
    pub(super) fn resume(&mut self, commit: &Commit, plan: &Plan) -> Result<(), Fault> {
        if plan.shares.len() != commit.inputs.len() {
            return Err(Fault::new(format!("the last commit of `{}` is not from a merge", self.name), ""));
        }
        // A book whose newest commits do not verify says less than the output shows: going on would show it twice.
        let shown = (self.out.next_sequence(), self.aside.next_sequence());
        if plan.output == self.out.header().uuid && (shown.0 > commit.output_next || shown.1 > plan.aside.1) {
            let (next, known) = (shown.0, commit.output_next);
            let what = format!("cannot resume merge `{}`", self.name);
            return Err(Fault::new(what, format!("it has {next} messages but commits for {known}"))
                .hint("run `beamport verify --repair` to repair what a checksum proves"));
        }
        let is_other = |(known, share): (&crate::records::Input, &Share)| {
            let input = self.inputs.iter().find(|input| input.account.stream == known.stream);
            input.is_some_and(|input| input.slices != share.slices)
        };
        self.has_other_slices = commit.inputs.iter().zip(&plan.shares).any(is_other);
        self.check_slices()?;
        match (&mut self.by, plan.by()?) {
            (By::Time(ahead_max), By::Time(then)) => {
                // The old measure separated the waiting messages from those ahead.
                if commit.inputs.iter().any(|i| i.count(WAITS) > 0) {
                    *ahead_max = then;
                }
            }
            (By::Number(numbers), By::Number(then)) => numbers.resume(&then),
            _ => {
                let what = format!("cannot resume merge `{}`", self.name);
                return Err(Fault::new(what, "its stream was merged by another `kind`")
                    .hint(format!("write its previous `kind`, or move `{}` away to start a new stream", self.name)));
            }
        }
        self.stand(plan.to);
        if let By::Time(_) = self.by {
            // The output has come to `to` a wait behind it.
            self.pace.resume(plan.to.saturating_add(self.longest()));
        }
        for input in &mut self.inputs {
            let at = commit.inputs.iter().position(|i| i.stream == input.account.stream);
            if !input.resume(at.map(|at| (&commit.inputs[at], &plan.shares[at])), plan.to, &self.by)? {
                continue;
            }
            if let Some(share) = at.map(|at| &plan.shares[at]) {
                let waiting = input.look_back(&self.data, (share.low, input.account.next), plan.to, &mut self.by)?;
                let waited = input.account.count(WAITS);
                if share.slices != input.slices {
                    input.skip_anew(waited, waiting);
                } else if waiting < waited {
                    // Gone since; one that verifies no more is gone as well.
                    input.lose(share.low, input.account.next - 1, waited - waiting, "full");
                }
            }
        }
        // A recreated output holds none of the earlier messages: nothing to finish.
        if plan.output == self.out.header().uuid
            && (commit.output_next > self.out.next_sequence() || plan.aside.1 > self.aside.next_sequence())
        {
            if let By::Time(_) = self.by {
                self.frontier = plan.from;
            }
            self.finish(commit, plan)?;
        }
        Ok(())
    }

    /// Whether its slices are others than those of the commit from which it resumed.
    pub fn has_other_slices(&self) -> bool {
        self.has_other_slices
    }

    /// Refuses other slices than those of the commit while a run is not sealed: messages between the commits of all
    /// parts would be in no part, or in two.
    pub fn check_slices(&self) -> Result<(), Fault> {
        if !self.has_other_slices {
            return Ok(());
        }
        let mut runs = RunsView::new(&self.data);
        let Some(run) = runs.refresh()?.iter().find(|run| run.state != State::Sealed) else { return Ok(()) };
        let what = format!("merge `{}` cannot change its hosts, `slice` or `overlap`", self.name);
        let hint = "write what they were, end the run, and change them when it is sealed";
        Err(Fault::new(what, format!("run `{}` is not sealed", run.name)).hint(hint))
    }

    /// Takes the slice of a commit again, as far as the output does not show it.
    fn finish(&mut self, commit: &Commit, plan: &Plan) -> Result<(), Fault> {
        let early = self.out.header().level == Level::Memory;
        let (mut taken, mut strays) = (Taken::default(), Vec::new());
        let mut by = plan.by()?;
        // Number of the input in the commit, by place.
        let mut number_of = vec![usize::MAX; self.places.len()];
        for (at, (known, share)) in commit.inputs.iter().zip(&plan.shares).enumerate() {
            if share.took + share.strays == 0 {
                continue;
            }
            // Messages of a stream that is gone are counted below.
            let of = MergeInput { stream: known.stream.clone(), slices: share.slices, ..MergeInput::default() };
            let Ok(mut input) = Input::open(&self.data, &of, early, &by) else { continue };
            if input.account.uuid != known.uuid {
                continue;
            }
            let place = match self.inputs.iter().position(|i| i.account.stream == known.stream) {
                Some(place) => place,
                None => {
                    let Ok(places) = places_of(&mut self.out, &mut self.aside, &self.name, &known.stream) else {
                        continue;
                    };
                    self.places.push(places);
                    self.former.push(known.next);
                    number_of.push(usize::MAX);
                    self.places.len() - 1
                }
            };
            number_of[place] = at;
            input.before = share.before;
            input.again = share.again.clone();
            input.course.resume(&share.course, known.next);
            input.look_back(&self.data, (share.low, known.next), plan.from, &mut by)?;
            input.take(place as u32, (plan.from, plan.to), &by, &mut taken)?;
            strays.extend(input.strays.drain(..).map(|stray| (place as u32, stray)));
        }
        self.taken = taken;
        self.sort();
        let taken = &self.taken;
        self.order.retain(|&at| {
            let (place, sequence) = taken.of[at as usize];
            let keeps = plan.shares[number_of[place as usize]].surplus.binary_search(&sequence).is_err();
            if !keeps {
                strays.push((place, Stray { sequence, entry: taken.entries[at as usize] }));
            }
            keeps
        });
        strays.sort_by_key(|(place, stray)| (number_of[*place as usize], stray.sequence));
        self.skip_shown(commit, plan, &number_of)?;
        let aside = self.strays_shown(commit, plan, &number_of, &strays)?;
        self.slice = Some(Slice { commit: SliceCommit::Written(0), shown: 0, strays, aside });
        Ok(())
    }

    /// Leaves what the output shows of a slice out of its order, and counts what is neither there nor to be had.
    fn skip_shown(&mut self, commit: &Commit, plan: &Plan, number_of: &[usize]) -> Result<(), Fault> {
        let (first, next) = (commit.output_first, self.out.next_sequence());
        let mut found = Found::open(self, &self.name)?;
        let newest = if next > first { found.entry(commit, next - 1) } else { None };
        let taken = &self.taken;
        let key = |at: u32| -> Key {
            let (place, sequence) = taken.of[at as usize];
            (taken.keys[at as usize], number_of[place as usize], sequence)
        };
        let newest = newest.and_then(|(entry, number)| {
            let place = (number, entry.parent_sequence);
            let known = self.order.iter().map(|&at| key(at)).find(|known| (known.1, known.2) == place);
            // The input may have freed the shown message since.
            let gone = || Some((plan.key_of(&entry)?, place.0, place.1));
            known.or_else(gone)
        });
        match newest {
            Some(newest) => self.order.retain(|&at| key(at) > newest),
            None => {
                let shown = usize::try_from(next.saturating_sub(first)).unwrap_or(usize::MAX);
                self.order.drain(..shown.min(self.order.len()));
            }
        }
        let mut left = vec![0; commit.inputs.len()];
        for &at in &self.order {
            left[number_of[self.taken.of[at as usize].0 as usize]] += 1;
        }
        let (shown, mut unseen) = found.shown(&self.name, commit, first, next)?;
        for (at, known) in commit.inputs.iter().enumerate() {
            let mut missing = plan.shares[at].took.saturating_sub(shown[at] + left[at]);
            let excused = missing.min(unseen);
            (missing, unseen) = (missing - excused, unseen - excused);
            let input = self.inputs.iter_mut().find(|i| i.account.stream == known.stream);
            // An account that restarts behind a cut does not cover them.
            if let Some(input) = input.filter(|i| missing > 0 && i.is_resumed) {
                input.account.done = input.account.done.saturating_sub(missing);
                input.lose(plan.shares[at].low, known.next.saturating_sub(1), missing, "full");
            }
        }
        Ok(())
    }

    /// How many of the strays of a slice are aside: they stand there in the order (input, sequence).
    fn strays_shown(
        &self,
        commit: &Commit,
        plan: &Plan,
        number_of: &[usize],
        strays: &[(u32, Stray)],
    ) -> Result<usize, Fault> {
        let next = self.aside.next_sequence();
        if next <= plan.aside.0 {
            return Ok(0);
        }
        let newest = Found::open(self, &aside_of(&self.name))?.entry(commit, next - 1);
        Ok(match newest.map(|(entry, number)| (number, entry.parent_sequence)) {
            Some((number, sequence)) => {
                let stands = |s: &(u32, Stray)| (number_of[s.0 as usize], s.1.sequence) <= (number, sequence);
                strays.iter().filter(|s| stands(s)).count()
            }
            None => strays.len().min(usize::try_from(next - plan.aside.0).unwrap_or(usize::MAX)),
        })
    }

    /// Streams that were inputs once: what the views keep of them is kept, and no more.
    pub(super) fn keep_former(&mut self) -> Result<(), Fault> {
        let mut rows = Found::open(self, &self.name)?.parents;
        rows.extend(Found::open(self, &aside_of(&self.name))?.parents);
        for row in rows {
            if self.inputs.iter().any(|i| i.account.stream == row.name) {
                continue;
            }
            let Ok(reader) = self.data.reader_early(&row.name) else { continue };
            if reader.header().uuid != row.uuid {
                continue;
            }
            // One that is there already is found again; what does not fit any more keeps nothing.
            let Ok(places) = places_of(&mut self.out, &mut self.aside, &self.name, &row.name) else { continue };
            if !self.places.contains(&places) {
                self.places.push(places);
                self.former.push(reader.bounds().count);
            }
        }
        Ok(())
    }
}
