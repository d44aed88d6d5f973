//! Suggestions for misspelt words.

/// Returns the known word nearest to a wrong one, if it is close enough to be the
/// intended word.
pub fn nearest<'k>(wrong: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let distance = |word: &&str| strsim::damerau_levenshtein(wrong, word);
    // The cost of a comparison is the product of the lengths, and no known word is that long.
    if wrong.len() > 64 {
        return None;
    }
    let begins_alike = |word: &&str| wrong.len() >= 3 && (word.starts_with(wrong) || wrong.starts_with(word));
    let mut known: Vec<_> = known.into_iter().collect();
    known.sort_by_cached_key(distance);
    let is_near = |word: &&str| distance(word) <= 1 + word.len() / 4;
    known.first().copied().filter(is_near).or_else(|| known.into_iter().find(begins_alike))
}
