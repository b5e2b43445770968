//! Several writers of one sink: each has a share of its streams.

use flow::checked::StreamModule;

/// Modules whose groups another writer may have: what they take is large. Logs stay in the run's file, where paths in
/// attributes (`depends_on`) find them.
const SHARED: [&str; 7] = ["ev44", "ev42", "ad00", "ar51", "da00", "hs01", "hs00"];

/// Shares the inputs of a sink out to at most so many writers, about the same number of modules to each; the first has
/// what cannot be shared. Streams stay together that one module reads, or the modules of one group and of groups in it.
pub(super) fn shared_out(inputs: &[String], modules: &[StreamModule], writers: usize) -> Vec<Vec<String>> {
    let mut sets = Sets((0..=inputs.len()).collect());
    let place = |stream: &String| inputs.iter().position(|input| input == stream);
    // Below the file itself and its entries.
    let is_below = |group: &str| group.matches("/children/").count() > 1;
    let mut groups: Vec<(&str, bool, Vec<usize>)> = modules
        .iter()
        .map(|module| {
            let group = module.pointer.rsplitn(4, '/').nth(3).unwrap_or_default();
            let goes = SHARED.contains(&module.module.as_str()) && is_below(group);
            (group, goes, module.streams.iter().filter_map(place).collect())
        })
        .collect();
    // An outer group comes before those in it.
    groups.sort_by_key(|group| group.0);
    // One place more, for what stays with the first.
    let stays = inputs.len();
    let mut above: Vec<(&str, usize)> = Vec::new();
    for (group, goes, streams) in &groups {
        let Some(&first) = streams.first() else { continue };
        streams.iter().for_each(|stream| sets.join(first, *stream));
        if !goes {
            sets.join(first, stays);
        }
        above.retain(|(outer, _)| {
            group.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        above.iter().for_each(|(_, stream)| sets.join(first, *stream));
        if is_below(group) {
            above.push((group, first));
        }
    }
    let mut load: Vec<usize> = vec![0; inputs.len() + 1];
    groups.iter().filter_map(|(.., streams)| streams.first()).for_each(|stream| load[sets.of(*stream)] += 1);
    let is_read: Vec<bool> = (0..inputs.len()).map(|stream| load[sets.of(stream)] > 0).collect();
    let (first, mut shares) = (sets.of(stays), vec![(0, Vec::<usize>::new()); writers.max(1)]);
    shares[0] = (load[first], vec![first]);
    let mut roots: Vec<usize> =
        (0..inputs.len()).filter(|at| sets.of(*at) == *at && is_read[*at] && *at != first).collect();
    roots.sort_by_key(|root| std::cmp::Reverse(load[*root]));
    for root in roots {
        if let Some(share) = shares.iter_mut().min_by_key(|share| share.0) {
            share.0 += load[root];
            share.1.push(root);
        }
    }
    let of = |(number, share): (usize, &(usize, Vec<usize>))| -> Vec<String> {
        let is_here = |at: usize| share.1.contains(&sets.of(at)) || number == 0 && !is_read[at];
        (0..inputs.len()).filter(|at| is_here(*at)).map(|at| inputs[at].clone()).collect()
    };
    let all: Vec<Vec<String>> = shares.iter().enumerate().map(of).collect();
    // A writer without a stream has nothing to wait for.
    all.into_iter().filter(|streams| !streams.is_empty()).collect()
}

/// Which places belong together.
struct Sets(Vec<usize>);

impl Sets {
    fn of(&self, mut at: usize) -> usize {
        while self.0[at] != at {
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.of(one), self.of(other));
        self.0[one.max(other)] = one.min(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_shared_out_and_what_belongs_together_stays_so() {
        let at = |pointer: &str, module: &str, streams: &[&str]| StreamModule {
            pointer: format!("{pointer}/config"),
            module: module.to_owned(),
            streams: streams.iter().map(|s| (*s).to_owned()).collect(),
            ..StreamModule::default()
        };
        let inputs = |names: &str| names.chars().map(|c| c.to_string()).collect::<Vec<_>>();
        let shared = |names: &str, modules: &[StreamModule], writers: usize| {
            shared_out(&inputs(names), modules, writers).iter().map(|s| s.concat()).collect::<Vec<_>>().join(" ")
        };
        let bank = |n: usize, stream: &str| at(&format!("/children/0/children/{n}/children/0"), "ev44", &[stream]);
        let banks: Vec<StreamModule> = ["a", "b", "c", "d"].iter().enumerate().map(|(n, s)| bank(n, s)).collect();
        assert_eq!(shared("abcd", &banks, 1), "abcd");
        assert_eq!(shared("abcd", &banks, 2), "ac bd");
        assert_eq!(shared("abcd", &banks, 4), "a b c d");
        assert_eq!(shared("abcd", &banks, 16), "a b c d");
        // Logs stay, with all of their stream; and what no module reads.
        let mut with_logs = banks.clone();
        with_logs.push(at("/children/0/children/9/children/0", "f144", &["b"]));
        assert_eq!(shared("abcdx", &with_logs, 2), "bdx ac");
        // So does what stands in the entry.
        with_logs.push(at("/children/0/children/11", "ev44", &["c"]));
        assert_eq!(shared("abcdx", &with_logs, 3), "bcx a d");
        // One module of two streams; a group in a group, wherever it stands in the text.
        let mut tied = banks.clone();
        tied.push(at("/children/0/children/10/children/0", "ev44", &["a", "d"]));
        tied.push(at("/children/0/children/1/children/4/children/0", "da00", &["c"]));
        tied.rotate_right(1);
        assert_eq!(shared("abcd", &tied, 4), "ad bc");
        assert_eq!(shared("", &[], 4), "");
    }
}
