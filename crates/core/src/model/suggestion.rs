//! The name that was probably meant.

/// Longest name that is compared, in bytes.
const MAX_NAME: usize = 64;

/// The known name that is nearest to `name`, if one is near.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() > MAX_NAME {
        return None;
    }
    let name = name.to_lowercase();
    let allowed = (name.chars().count() / 3).clamp(1, 3);
    known
        .filter(|known| known.len() <= MAX_NAME)
        .map(|known| (distance(&name, &known.to_lowercase()), known))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// How many characters must be changed, added, removed or swapped with the
/// next.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut least = (last[j + 1] + 1)
                .min(row[j] + 1)
                .min(last[j] + usize::from(x != y));
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}
