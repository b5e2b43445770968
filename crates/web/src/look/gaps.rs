//! The messages that a stream lacks, over time, and the gap that begins next.

use super::times::shares;
use crate::limits::ROUNDED;
use flow::records::Gap;

/// How many messages are missing in equal parts of the time from `from` to `to`, of the gaps that touch it: those of a
/// gap are spread evenly over its time. NaN where a gap has an unknown number of messages.
pub(super) fn loss(gaps: &[&Gap], (from, to): (i64, i64), width: usize) -> Vec<f64> {
    let mut lost = vec![0.0_f64; width];
    for gap in gaps.iter().copied().filter(is_timed) {
        // NaN makes its parts NaN, whatever else is added.
        let count = count(gap).unwrap_or(f64::NAN);
        for (part, share) in shares((gap.from, gap.to), (from, to), width) {
            lost[part] += count * share;
        }
    }
    lost
}

/// Whether a gap touches a time. One whose time is not known touches all.
pub(super) fn overlaps(gap: &Gap, (from, to): (i64, i64)) -> bool {
    gap.to >= from && gap.from <= to
}

/// Whether the time of a gap is known.
fn is_timed(gap: &&Gap) -> bool {
    gap.from > i64::MIN && gap.to < i64::MAX
}

/// The gap that begins next after a moment, or else before it.
pub(super) fn next(gaps: &[Gap], at: i64, is_on: bool) -> Option<&Gap> {
    nearest(gaps.iter().filter(is_timed), |gap| gap.from, at, is_on)
}

/// The entry that begins next after a moment, or else before it.
pub(super) fn nearest<'a, T>(
    all: impl Iterator<Item = &'a T>,
    from: impl Fn(&T) -> i64,
    at: i64,
    is_on: bool,
) -> Option<&'a T> {
    if is_on {
        return all.filter(|one| from(one) > at).min_by_key(|one| from(one));
    }
    all.filter(|one| from(one) < at.saturating_sub(ROUNDED)).max_by_key(|one| from(one))
}

/// Messages of a gap; none where they are not known.
fn count(gap: &Gap) -> Option<f64> {
    let all = (gap.last.checked_sub(gap.first)?).saturating_add(1);
    Some(if gap.count > 0 { gap.count } else { all } as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap((first, last): (u64, u64), (from, to): (i64, i64), count: u64) -> Gap {
        let word = String::new;
        Gap { stream: word(), origin: word(), first, last, from, to, reason: word(), by_sequence: false, count }
    }

    #[test]
    fn loss_is_spread_over_the_time_of_its_gap() {
        let gaps = [gap((0, 9), (0, 100), 0), gap((20, 39), (150, 150), 4), gap((50, 50), (900, 950), 0)];
        let touching = |times| gaps.iter().filter(|gap| overlaps(gap, times)).collect::<Vec<_>>();
        let lost = loss(&touching((0, 199)), (0, 199), 4);
        assert!((lost[0] - 5.0).abs() < 0.1 && (lost[1] - 5.0).abs() < 0.1, "{lost:?}");
        assert!(lost[2] < 0.1 && lost[3] == 4.0, "{lost:?}");
        // A gap that began before has its share in it; one of an unknown number has none.
        assert!((loss(&touching((50, 99)), (50, 99), 1)[0] - 5.0).abs() < 0.2);
        let lost = loss(&[&gap((7, 6), (40, 60), 0)], (0, 99), 4);
        assert!(lost[0] == 0.0 && lost[1].is_nan() && lost[2].is_nan() && lost[3] == 0.0, "{lost:?}");
    }

    #[test]
    fn a_gap_is_found_from_moments_just_behind_another() {
        let gaps: Vec<Gap> = (1..=3000).map(|n| gap((n, n), (n as i64 * 1000, n as i64 * 1000 + 1), 0)).collect();
        let walk = |is_on, start, behind| {
            let mut at = start;
            let found = std::iter::from_fn(|| {
                let gap = next(&gaps, at, is_on)?;
                at = gap.from + behind;
                Some(gap.first)
            });
            found.collect::<Vec<_>>()
        };
        for behind in [0, 256, 512] {
            assert!(walk(true, 0, behind).into_iter().eq(1..=3000));
            assert!(walk(false, i64::MAX, behind).into_iter().eq((1..=3000).rev()));
        }
    }
}
