//! Families: texts with a range of numbers, `d{001..120}`, that stand for as many texts.

use crate::units::{Refused, shortened};

/// A text with a range: one text for each of its numbers.
#[derive(Clone, Copy, Debug)]
pub struct Family<'a> {
    before: &'a str,
    first: usize,
    /// Digits of each number, with leading zeros; 0: as many as it has.
    width: usize,
    behind: &'a str,
    /// How many texts it stands for; 1 or more.
    pub count: usize,
}

impl<'a> Family<'a> {
    /// Reads a text; `None` where it has no range. Numbers have leading zeros where the first and the last are written with
    /// as many digits.
    pub fn of(text: &'a str) -> Option<Result<Self, Refused>> {
        let (before, (first, last), behind) = range_of(text)?;
        let digits = |text: &str| (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let width = if first.len() == last.len() { first.len() } else { 0 };
        let refused = |cause| Err(Refused::new(cause, "write a range like `{1..8}` or `{001..120}`"));
        let wrong = || refused(format!("`{{{}..{}}}` is not a range of numbers", shortened(first), shortened(last)));
        Some(match (first.parse(), last.parse()) {
            (Ok(low), Ok(high)) if digits(first) && digits(last) && low <= high => {
                Ok(Self { before, first: low, width, behind, count: high - low + 1 })
            }
            _ => wrong(),
        })
    }

    /// The text of one number, the first for 0.
    #[must_use]
    pub fn item(&self, at: usize) -> String {
        let Self { before, first, width, behind, .. } = *self;
        format!("{before}{:0width$}{behind}", first + at)
    }
}

/// The texts that a text stands for: itself, or one for each number of its range. At most `most` texts.
pub fn expanded(text: &str, most: usize) -> Result<Vec<String>, Refused> {
    let Some(family) = Family::of(text) else { return Ok(vec![text.to_owned()]) };
    let family = family?;
    if family.count > most {
        let cause = format!("its range has {} numbers, {most} are possible", family.count);
        return Err(Refused::new(cause, "write a smaller range, like `{001..120}`"));
    }
    Ok((0..family.count).map(|at| family.item(at)).collect())
}

/// Whether a text has a range in braces.
#[must_use]
pub fn is_family(text: &str) -> bool {
    range_of(text).is_some()
}

/// The text before the first braces with `..` in them, the two ends of the range, and the text behind.
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
