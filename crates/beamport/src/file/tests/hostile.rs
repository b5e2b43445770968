//! Files that nobody would write: huge ones, and twenty thousand mutations of the examples.

use super::*;

#[test]
fn hostile_amounts_end_in_a_bounded_report() {
    let many = |n: usize, line: &dyn Fn(usize) -> String| (0..n).map(line).collect::<String>();
    let texts = [
        format!("{SOURCE}{}", many(100_000, &|n| format!("k{n}=1\n"))),
        many(150_000, &|n| format!("k{n}=1\n")),
        many(60_000, &|n| format!("[source.s{n}]\n")),
        many(100_000, &|n| format!("[a{n}]\n")),
        format!(
            "{SOURCE}[sink.f]\nkind=\"nexus\"\ntemplate=\"x\"\ninputs=[{}]\n",
            many(100_000, &|n| format!("\"s{n}\","))
        ),
        "=\n".repeat(300_000),
        "a=1\n".repeat(200_000),
        format!("{}=1\n", "k".repeat(1_000_000)),
        format!("instrument=\"{}\"\n", "k".repeat(1_000_000)),
    ];
    for text in texts {
        let mistakes = wrong(&text);
        assert!(mistakes.len() <= settings::limits::MISTAKES_MAX + 1);
        assert!(mistakes.iter().all(|mistake| mistake.to_string().len() < 2000), "{}", &text[..20]);
    }
}

/// Numbers that look random and are the same everywhere (splitmix64; Steele, Lea, Flood 2014).
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        (store::splitmix64(&mut self.0) % n.max(1) as u64) as usize
    }
}

#[test]
fn twenty_thousand_mutations_of_the_examples_never_panic() {
    const PIECES: [&str; 24] = [
        "[",
        "]",
        "{",
        "}",
        "=",
        "\"",
        "\"\"\"",
        "'''",
        "\\",
        "\n",
        ".",
        ",",
        "-1",
        "1e999",
        "0x",
        "nan",
        "\u{0}",
        "é",
        "\u{202e}",
        "[source.",
        "[[",
        "2026-99-99",
        "9999999999999999999999",
        "\"../../etc\"",
    ];
    let folder = Folder::new("mutations");
    let files = examples(&folder);
    let texts: Vec<String> = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let mut refused = 0;
    for seed in 0..20_000u64 {
        let mut chance = Chance(seed);
        let which = chance.below(texts.len());
        let mut text: Vec<char> = texts[which].chars().collect();
        for _ in 0..=chance.below(4) {
            let (at, to) = (chance.below(text.len()), chance.below(text.len()));
            match chance.below(5) {
                0 => drop(text.drain(at.min(to)..(at.min(to) + chance.below(40)).min(text.len()))),
                1 => drop(text.splice(at..at, PIECES[chance.below(PIECES.len())].chars())),
                2 => text[at] = char::from_u32(chance.below(0x250) as u32).unwrap_or('x'),
                3 => text.truncate(at.max(1)),
                // Lines in other places and twice.
                _ => {
                    let piece: Vec<char> = text[at.min(to)..(at.min(to) + 60).min(text.len())].to_vec();
                    drop(text.splice(to..to, piece));
                }
            }
            if text.is_empty() {
                text.push('x');
            }
        }
        let text: String = text.into_iter().collect();
        if let Err(mistakes) = parse(&text, &files[which], &unasked) {
            refused += 1;
            let lines = u32::try_from(text.matches('\n').count()).unwrap() + 1;
            for mistake in &mistakes {
                assert!(
                    !mistake.what.is_empty() && (mistake.line <= lines || mistake.file.ends_with("json")),
                    "seed {seed}: {mistake:?}"
                );
                assert!(
                    !mistake.to_string().contains('\u{1b}') && !mistake.to_string().contains('\0'),
                    "seed {seed}: {mistake:?}"
                );
            }
            assert!(!mistakes.is_empty(), "seed {seed}");
        }
    }
    // Remarks and lengths may change harmlessly; most changes must be seen.
    assert!(refused > 10_000, "only {refused} of 20000 refused");
}
