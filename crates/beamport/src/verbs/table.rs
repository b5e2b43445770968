//! Tables of text: columns as wide as their widest cell, two blanks between, no lines.

use std::fmt::Write as _;

/// A table; its heads begin with `>` where figures stand to the right.
pub struct Table {
    heads: Vec<(String, bool)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads.
    #[must_use]
    pub fn new(heads: &[&str]) -> Self {
        let head = |head: &&str| (head.trim_start_matches('>').to_owned(), head.starts_with('>'));
        Self { heads: heads.iter().map(head).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// True if it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let heads: Vec<String> = self.heads.iter().map(|h| h.0.clone()).collect();
        let wide = |text: &String| text.chars().count();
        let widths: Vec<usize> = (0..heads.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.chain([&heads[column]]).map(wide).max().unwrap_or(0)
            })
            .collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate().take(widths.len()) {
                let gap = if column == 0 { 0 } else { 2 };
                let space = widths[column] - wide(cell);
                let (before, after) = if self.heads[column].1 { (space, 0) } else { (0, space) };
                write!(line, "{:gap$}{:before$}{cell}{:after$}", "", "", "")?;
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let mut table = Table::new(&["stream", ">messages", "state"]);
        table.row(["detector", "1,234,567", "ok"].map(String::from));
        table.row(["µ", "7"].map(String::from));
        assert_eq!(table.to_string(), "stream     messages  state\ndetector  1,234,567  ok\nµ                 7\n");
    }
}
