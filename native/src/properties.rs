//! The properties of a message in wire form, as drawn in `rocket_remoting.wire.properties`.

use crate::java_hash::JavaHash;

const NAME_END: u8 = 1;
const VALUE_END: u8 = 2;

const TAGS: &str = "TAGS";
const KEYS: &str = "KEYS";
const UNIQUE_KEY: &str = "UNIQ_KEY";
const WAIT: &str = "WAIT";

/// Calls `take` with the name and the value of each property; returns `None` if the text is not in the usual form.
///
/// Usual are properties that all have a name and a value, with one separator behind each. Behind the last value it may
/// be missing: Java's clients from 4.9.1 to 5.1 leave it out. A zero byte is not usual: the store refuses it.
pub fn each_property<'a>(text: &'a str, mut take: impl FnMut(&'a str, &'a str) -> Option<()>) -> Option<()> {
    let mut start = 0;
    while start < text.len() {
        let name_end = separator(text, start)?;
        let value_end = separator(text, name_end + 1).unwrap_or(text.len());
        let is_usual = text.as_bytes()[name_end] == NAME_END
            && text.as_bytes().get(value_end).is_none_or(|byte| *byte == VALUE_END)
            && name_end > start
            && value_end > name_end + 1;
        if !is_usual {
            return None;
        }
        take(&text[start..name_end], &text[name_end + 1..value_end])?;
        start = value_end + 1;
    }
    Some(())
}

/// Returns the position of the next separator or zero byte.
fn separator(text: &str, start: usize) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHEST: u64 = 0x80 * ONES;
    const BEHIND: u8 = VALUE_END + 1;
    let (words, rest) = text.as_bytes().get(start..)?.as_chunks::<8>();
    for (number, bytes) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*bytes);
        // Sets the highest bit of the first byte that is below `BEHIND`, and perhaps of later ones.
        let found = word.wrapping_sub(ONES * u64::from(BEHIND)) & !word & HIGHEST;
        if found != 0 {
            return Some(start + number * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let place = rest.iter().position(|byte| *byte < BEHIND)?;
    Some(start + words.len() * 8 + place)
}

/// The properties that the store reads.
#[derive(Default)]
pub struct Known<'a> {
    tags: Option<&'a str>,
    keys: Option<&'a str>,
    wait: Option<&'a str>,
    pub unique_key: Option<&'a str>,
}

impl<'a> Known<'a> {
    /// Notes a property, if it is one of these; returns `None` if it is there twice, for the last one counts then.
    pub fn note(&mut self, name: &str, value: &'a str) -> Option<()> {
        let known = match name {
            TAGS => &mut self.tags,
            UNIQUE_KEY => &mut self.unique_key,
            KEYS => &mut self.keys,
            WAIT => &mut self.wait,
            _ => return Some(()),
        };
        known.replace(value).is_none().then_some(())
    }

    /// Whether a property is the one that says whether the sender waits for the disk.
    pub fn is_wait(name: &str) -> bool {
        name == WAIT
    }

    /// Returns the tags code.
    pub fn tags_code(&self) -> i64 {
        self.tags.map_or(0, |tags| i64::from(JavaHash::of(tags).hash.cast_signed()))
    }

    /// Returns whether the sender waits for the disk.
    pub fn waits(&self) -> bool {
        self.wait.is_none_or(|wait| wait.eq_ignore_ascii_case("true"))
    }

    /// Calls `take` with the hash of each key, the unique key first; returns `None` if there are `most` spaces or more.
    pub fn each_key(&self, most: usize, mut take: impl FnMut(JavaHash)) -> Option<()> {
        if let Some(key) = self.unique_key {
            take(JavaHash::of(key));
        }
        if let Some(keys) = self.keys {
            if keys.bytes().filter(|byte| *byte == b' ').count() >= most {
                return None;
            }
            keys.split(' ').filter(|key| !key.is_empty()).for_each(|key| take(JavaHash::of(key)));
        }
        Some(())
    }
}
