//! The word that was probably meant.

/// The nearest of `words` within a third of the letters of `typed` (at least one) by insertions, deletions and
/// replacements.
pub(super) fn nearest<'a>(typed: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // What nobody meant as a word need not be compared.
    if typed.len() > 64 {
        return None;
    }
    let allowed = (typed.chars().count() / 3).max(1);
    words
        .into_iter()
        // Each step changes one letter, of at most four bytes.
        .filter(|word| word.len().abs_diff(typed.len()) <= 4 * allowed)
        .map(|word| (distance(typed, word), word))
        .filter(|(steps, _)| *steps <= allowed)
        .min_by_key(|(steps, _)| *steps)
        .map(|(_, word)| word)
}

/// Levenshtein's distance, one row at a time.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
