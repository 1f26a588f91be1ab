//! Java's `String.hashCode`, as in `rocket_remoting.wire.java_hash`.

const BASE: u32 = 31;
/// Bytes of an ASCII text that are added in one step, in which their multiplications do not wait for each other.
const STEP: usize = 8;
/// The powers of 31 by which the bytes of a step count, the last byte's last.
const POWERS: [u32; STEP] = {
    let mut powers = [1_u32; STEP];
    let mut place = STEP - 1;
    while place > 0 {
        powers[place - 1] = powers[place].wrapping_mul(BASE);
        place -= 1;
    }
    powers
};
const STEP_FACTOR: u32 = POWERS[0].wrapping_mul(BASE);

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
            let (steps, rest) = text.as_bytes().as_chunks::<STEP>();
            for step in steps {
                let units = step.iter().zip(POWERS).map(|(unit, power)| u32::from(*unit).wrapping_mul(power));
                let hash = units.fold(0, u32::wrapping_add);
                found = Self {
                    hash: found.hash.wrapping_mul(STEP_FACTOR).wrapping_add(hash),
                    factor: found.factor.wrapping_mul(STEP_FACTOR),
                };
            }
            for &unit in rest {
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
        self.hash = self.hash.wrapping_mul(BASE).wrapping_add(unit);
        self.factor = self.factor.wrapping_mul(BASE);
    }
}
