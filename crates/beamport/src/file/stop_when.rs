//! `stop_when` of a run: a condition on values that ends it, such as `error < 0.03 and counts >= 1e5`.

use settings::Take;
use settings::units::Refused;
use std::fmt;
use toml_edit::Item;

const HINT: &str = "write a name, `<`, `<=`, `>` or `>=`, and a number: \"error < 0.03\", with `and` between several";

/// A condition on values: all its terms hold.
#[derive(Clone, Debug, PartialEq)]
pub struct StopWhen(pub Vec<Term>);

/// A bound of one value.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// Origin of the value: the name of a PV, or of a result.
    pub name: String,
    /// How it compares.
    pub bound: Bound,
    /// With what.
    pub limit: f64,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
}

impl Bound {
    const ALL: [(&str, Self); 4] =
        [("<=", Self::AtMost), (">=", Self::AtLeast), ("<", Self::Below), (">", Self::Above)];
}

impl Term {
    /// Whether a value is inside. NaN is not.
    pub fn holds(&self, value: f64) -> bool {
        match self.bound {
            Bound::Below => value < self.limit,
            Bound::AtMost => value <= self.limit,
            Bound::Above => value > self.limit,
            Bound::AtLeast => value >= self.limit,
        }
    }

    fn parse(text: &str) -> Result<Self, Refused> {
        let refused = |why: String| Refused::new(why, HINT);
        let split = |(sign, bound): &(&str, Bound)| text.split_once(sign).map(|(name, limit)| (name, *bound, limit));
        let found = Bound::ALL.iter().find_map(split);
        let (name, bound, limit) = found.ok_or_else(|| refused(format!("`{text}` compares nothing")))?;
        let (name, limit) = (name.trim(), limit.trim());
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(refused(format!("`{name}` is not the name of a value")));
        }
        let limit = limit.parse().ok().filter(|limit: &f64| limit.is_finite());
        let limit = limit.ok_or_else(|| refused(format!("`{text}` has no number behind its sign")))?;
        Ok(Self { name: name.to_owned(), bound, limit })
    }
}

impl fmt::Display for StopWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Term { name, bound, limit }) in self.0.iter().enumerate() {
            let sign = Bound::ALL.iter().find(|(_, known)| known == bound).map_or("", |(sign, _)| sign);
            write!(f, "{}{name} {sign} {limit}", if at > 0 { " and " } else { "" })?;
        }
        Ok(())
    }
}

impl Take for StopWhen {
    fn take(item: &Item) -> Result<Self, Refused> {
        let text = item.as_str().ok_or_else(|| Refused::new("it is not a text", HINT))?;
        text.split(" and ").map(|term| Term::parse(term.trim())).collect::<Result<_, _>>().map(Self)
    }

    fn default_of(_text: &str) -> Option<Self> {
        None
    }

    fn show(&self) -> serde_json::Value {
        self.to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<StopWhen, Refused> {
        StopWhen::take(&toml_edit::value(text))
    }

    #[test]
    fn a_condition_is_read_as_it_is_shown() {
        for (text, shown) in [
            ("error < 0.03", "error < 0.03"),
            ("LAB:T1>=1e3 and  x<=-2", "LAB:T1 >= 1000 and x <= -2"),
            ("a.b-c > 0", "a.b-c > 0"),
        ] {
            assert_eq!(read(text).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in
            ["", "error", "error < ", "< 3", "a b < 3", "error < x", "error < nan", "a < 1 and", "a == 3", "1 < a < 3"]
        {
            assert!(!read(text).unwrap_err().hint.is_empty(), "{text}");
        }
    }

    #[test]
    fn a_bound_holds_inside_alone() {
        let holds = |text: &str, value| read(text).unwrap().0[0].holds(value);
        assert!(holds("a < 1", 0.5) && !holds("a < 1", 1.0) && holds("a <= 1", 1.0));
        assert!(holds("a > 1", 1.5) && !holds("a > 1", 1.0) && holds("a >= 1", 1.0));
        assert!(!holds("a < 1", f64::NAN) && !holds("a >= 1", f64::NAN));
    }
}
