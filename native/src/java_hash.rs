//! Java's `String.hashCode`, as in `rocket_remoting.wire.java_hash`.

/// The hash of a text, and the factor by which a hash of what stands before the text counts.
///
/// ```text
/// hash(before + text) = hash(before) * factor + hash(text)          factor = 31 ^ (units of text)
/// ```
#[derive(Clone, Copy)]
pub struct JavaHash {
    pub hash: u32,
    pub factor: u32,
}

impl JavaHash {
    /// Returns the hash of a text's UTF-16 code units.
    pub fn of(text: &str) -> Self {
        let mut found = Self { hash: 0, factor: 1 };
        if text.is_ascii() {
            for &unit in text.as_bytes() {
                found.add(u32::from(unit));
            }
        } else {
            for unit in text.encode_utf16() {
                found.add(u32::from(unit));
            }
        }
        found
    }

    /// Returns the hash of a text with this hash behind another text.
    pub fn behind(self, before: u32) -> u32 {
        before.wrapping_mul(self.factor).wrapping_add(self.hash)
    }

    /// Returns the hash of a topic and of the `#` that stands between it and a key in the index.
    pub fn before_keys(topic: &str) -> u32 {
        let mut found = Self::of(topic);
        found.add(u32::from(b'#'));
        found.hash
    }

    fn add(&mut self, unit: u32) {
        self.hash = self.hash.wrapping_mul(31).wrapping_add(unit);
        self.factor = self.factor.wrapping_mul(31);
    }
}
