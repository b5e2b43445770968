//! Families: texts with a range of numbers, `d{001..120}`, that stand for as many texts.

use crate::units::Refused;

/// The texts that a text stands for: itself, or one for each number of its range. Numbers have leading zeros where the first
/// and the last are written with as many digits. At most `most` texts.
pub fn expanded(text: &str, most: usize) -> Result<Vec<String>, Refused> {
    let Some((before, range, behind)) = range_of(text) else { return Ok(vec![text.to_owned()]) };
    let hint = "write a range like `{1..8}` or `{001..120}`";
    let refused = |cause: String| Refused::new(cause, hint);
    let (first, last) = range;
    let digits = |text: &str| (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(first) || !digits(last) {
        return Err(refused(format!("`{{{first}..{last}}}` is not a range of numbers")));
    }
    let width = if first.len() == last.len() { first.len() } else { 0 };
    let number = |text: &str| text.parse::<usize>().unwrap_or(usize::MAX);
    let (low, high) = (number(first), number(last));
    let count = high.checked_sub(low).map_or(0, |more| more + 1);
    if count == 0 || count > most {
        return Err(refused(format!("`{{{first}..{last}}}` has {count} numbers, 1 to {most} are possible")));
    }
    Ok((low..=high).map(|n| format!("{before}{n:0width$}{behind}")).collect())
}

/// Whether a text has a range in braces.
#[must_use]
pub fn is_family(text: &str) -> bool {
    range_of(text).is_some()
}

/// What stands before the first braces with `..` in them, the two ends of the range, and what stands behind.
fn range_of(text: &str) -> Option<(&str, (&str, &str), &str)> {
    let mut from = 0;
    while let Some(open) = text[from..].find('{').map(|at| from + at) {
        let close = open + text[open..].find('}')?;
        if let Some(range) = text[open + 1..close].split_once("..") {
            return Some((&text[..open], range, &text[close + 1..]));
        }
        from = close + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_names_is_written_short() {
        let names = |text: &str| expanded(text, 1000).map(|names| names.join(" ")).ok();
        assert_eq!(names("left").as_deref(), Some("left"));
        assert_eq!(names("d{008..011}:x").as_deref(), Some("d008:x d009:x d010:x d011:x"));
        assert_eq!(names("d{8..11}").as_deref(), Some("d8 d9 d10 d11"));
        assert_eq!(names("127.0.0.1:{9001..9002}").as_deref(), Some("127.0.0.1:9001 127.0.0.1:9002"));
        // Placeholders of file names are no ranges.
        assert_eq!(names("{instrument}_{run}.nxs").as_deref(), Some("{instrument}_{run}.nxs"));
        assert_eq!(names("{run}_{1..2}").as_deref(), Some("{run}_1 {run}_2"));
        for wrong in ["d{1..}", "d{2..1}", "d{1..99999999}", "d{a..b}", "d{..}", "d{1..1001}"] {
            assert_eq!(names(wrong), None, "{wrong}");
        }
        assert!(is_family("d{a..b}") && !is_family("d{1") && !is_family("d{1}"));
    }
}
