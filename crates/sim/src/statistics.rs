//! Pearson's chi-squared for the tests of this crate.

/// Chi-squared of counts against weights of any norm, with its degrees of freedom; cells expected below 5 are joined into one.
pub(crate) fn chi_squared(counts: &[u64], weights: &[f64]) -> (f64, f64) {
    assert_eq!(counts.len(), weights.len());
    let total: u64 = counts.iter().sum();
    let norm: f64 = weights.iter().sum();
    let (mut chi, mut cells, mut rest) = (0.0, 0, (0.0, 0.0));
    for (&count, &weight) in counts.iter().zip(weights) {
        let expected = weight / norm * total as f64;
        if expected < 5.0 {
            rest = (rest.0 + count as f64, rest.1 + expected);
            continue;
        }
        chi += (count as f64 - expected).powi(2) / expected;
        cells += 1;
    }
    if rest.1 > 1.0 {
        chi += (rest.0 - rest.1).powi(2) / rest.1;
        cells += 1;
    }
    (chi, f64::from(cells - 1))
}

/// True within four standard deviations of what chance gives, on both sides: too good is wrong as well.
pub(crate) fn agrees((chi, freedom): (f64, f64)) -> bool {
    // Wilson and Hilferty (1931): the cube root of chi-squared / freedom is nearly normal.
    let spread = 2.0 / (9.0 * freedom);
    let z = ((chi / freedom).cbrt() - (1.0 - spread)) / spread.sqrt();
    z.abs() < 4.0
}
