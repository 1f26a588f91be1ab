//! The entries of a run in an index file, as drawn in `rocket_broker.store.index_file`.

use std::collections::HashMap;

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

use crate::memory::{in_order, outside, Memory};

/// Bytes of the header: four numbers of eight bytes, and two of four.
const HEADER: usize = 40;
const SLOT: usize = 4;
/// Bytes of an entry: hash, commit log offset, seconds and the number of the older entry.
const ENTRY: usize = 20;
/// With as many keys or fewer, looking through all of them costs less than a table.
const FEW: usize = 16;

/// Begin timestamp, end timestamp, begin offset, end offset, slots in use and the number of the next entry.
pub type Header = (i64, i64, i64, i64, i32, i32);

/// The map of an index file, its number of slots, and begin timestamp, begin offset, slots in use and the number of the
/// next entry as its header has them.
pub type IndexPlace<'py> = (Bound<'py, PyAny>, u32, i64, i64, i32, i32);

/// The memory of an index file, and what its header says.
pub struct Table {
    pub file: Memory,
    pub slot_count: u32,
    pub begin_timestamp: i64,
    pub begin_offset: i64,
    pub slots_used: i32,
    /// The number of the next entry.
    pub first: i32,
}

impl Table {
    /// Returns the table at a place that Python names.
    pub fn at((file, slot_count, begin_timestamp, begin_offset, slots_used, first): IndexPlace<'_>) -> PyResult<Self> {
        let (file, slot_count) = (Memory::writable(&file)?, checked(slot_count)?);
        Ok(Self { file, slot_count, begin_timestamp, begin_offset, slots_used, first })
    }

    /// Returns whether the file has space for entries of keys, given up to where its entries have space, and whether the
    /// slot at a position has space.
    pub fn has_room(&self, keys: &[Key], room: usize, has_space: impl Fn(usize) -> bool) -> bool {
        let Ok(first) = usize::try_from(self.first) else { return false };
        let end = entries_start(self.slot_count) + (first + keys.len()) * ENTRY;
        end <= room && has_space(0) && keys.iter().all(|key| has_space(key.slot_position(self.slot_count)))
    }
}

/// A key of a message, as the index has it.
pub struct Key {
    hash: u32,
    offset: i64,
    store_timestamp: i64,
}

impl Key {
    /// Returns the key with this hash of a message that was stored at this time and offset of the commit log.
    pub fn of(hash: u32, offset: i64, store_timestamp: i64) -> Self {
        // Java's Math.abs(Integer.MIN_VALUE) is negative; Apache's broker takes 0 for it.
        Self { hash: hash.cast_signed().checked_abs().unwrap_or(0).unsigned_abs(), offset, store_timestamp }
    }

    fn slot_position(&self, slot_count: u32) -> usize {
        HEADER + (self.hash % slot_count) as usize * SLOT
    }
}

/// Returns the parts with slots of the keys that are not marked in `allocated`; a part has `1 << bits` bytes.
pub fn parts_without_space(keys: &[Key], slot_count: u32, allocated: &Memory, bits: u32) -> PyResult<Vec<usize>> {
    let slot_count = checked(slot_count)?;
    let mut parts = Vec::new();
    for key in keys {
        let part = key.slot_position(slot_count).checked_shr(bits);
        let part = part.ok_or_else(|| PyValueError::new_err("the parts are too large"))?;
        if allocated.get(part)? == [0] {
            parts.push(part);
        }
    }
    parts.sort_unstable();
    parts.dedup();
    Ok(parts)
}

/// The entries of keys, made for a file and not written yet.
pub struct Entries {
    pub header: Header,
    header_bytes: [u8; HEADER],
    file: Memory,
    position: usize,
    bytes: Vec<u8>,
    newest: Newest,
}

/// For the position of each slot the number of the newest of some entries.
enum Newest {
    Few(Vec<(usize, i32)>),
    Many(HashMap<usize, i32>),
}

impl Newest {
    fn of(count: usize) -> Self {
        if count > FEW {
            Self::Many(HashMap::with_capacity(count))
        } else {
            Self::Few(Vec::with_capacity(count))
        }
    }

    /// Notes an entry, and returns the number of the one that was the newest.
    fn insert(&mut self, slot: usize, number: i32) -> Option<i32> {
        match self {
            Self::Many(numbers) => numbers.insert(slot, number),
            Self::Few(numbers) => {
                if let Some((_, newest)) = numbers.iter_mut().find(|(other, _)| *other == slot) {
                    return Some(std::mem::replace(newest, number));
                }
                numbers.push((slot, number));
                None
            }
        }
    }

    fn each(&self, mut take: impl FnMut(usize, i32)) {
        match self {
            Self::Many(numbers) => numbers.iter().for_each(|(slot, number)| take(*slot, *number)),
            Self::Few(numbers) => numbers.iter().for_each(|(slot, number)| take(*slot, *number)),
        }
    }
}

impl Entries {
    /// Makes the entries, each with the number of the older one in its slot.
    pub fn of(table: Table, keys: &[Key]) -> PyResult<Self> {
        let Table { file, slot_count, mut begin_timestamp, mut begin_offset, mut slots_used, first } = table;
        let (Some(first_key), Some(last_key)) = (keys.first(), keys.last()) else {
            return Err(PyValueError::new_err("there are no keys to index"));
        };
        if first == 1 {
            (begin_timestamp, begin_offset) = (first_key.store_timestamp, first_key.offset);
        }
        let mut bytes = Vec::with_capacity(keys.len() * ENTRY);
        let mut newest = Newest::of(keys.len());
        let mut number = first;
        for key in keys {
            let position = key.slot_position(slot_count);
            let older = if let Some(older) = newest.insert(position, number) {
                older
            } else {
                let older = i32::from_be_bytes(file.get(position)?);
                // A kill between slot and header leaves a slot with a number that no entry had.
                if 0 < older && older < first {
                    older
                } else {
                    // A damaged header may have any number here; nothing is read by it.
                    slots_used = slots_used.saturating_add(1);
                    0
                }
            };
            let seconds = key.store_timestamp.saturating_sub(begin_timestamp) / 1000;
            let seconds = i32::try_from(seconds.max(0)).unwrap_or(i32::MAX);
            let mut entry = [0; ENTRY];
            entry[..4].copy_from_slice(&key.hash.to_be_bytes());
            entry[4..12].copy_from_slice(&key.offset.to_be_bytes());
            entry[12..16].copy_from_slice(&seconds.to_be_bytes());
            entry[16..].copy_from_slice(&older.to_be_bytes());
            bytes.extend_from_slice(&entry);
            number =
                number.checked_add(1).ok_or_else(|| PyOverflowError::new_err("an index file has too many entries"))?;
        }
        let end_timestamp = last_key.store_timestamp;
        let header = (begin_timestamp, end_timestamp, begin_offset, last_key.offset, slots_used, number);
        let mut header_bytes = [0; HEADER];
        for (field, number) in [begin_timestamp, end_timestamp, begin_offset, last_key.offset].iter().enumerate() {
            header_bytes[field * 8..][..8].copy_from_slice(&number.to_be_bytes());
        }
        header_bytes[32..36].copy_from_slice(&slots_used.to_be_bytes());
        header_bytes[36..].copy_from_slice(&number.to_be_bytes());
        let position = entries_start(slot_count) + usize::try_from(first)? * ENTRY;
        if !file.has(position, bytes.len()) {
            return Err(outside());
        }
        Ok(Self { header, header_bytes, file, position, bytes, newest })
    }

    /// Writes entries, then the header, then the slots, so that the entries count if the process dies in between.
    pub fn write(&self) {
        self.file.write(self.position, &self.bytes);
        in_order();
        self.file.write(0, &self.header_bytes);
        in_order();
        self.newest.each(|slot, number| self.file.write(slot, &number.to_be_bytes()));
    }
}

fn entries_start(slot_count: u32) -> usize {
    HEADER + slot_count as usize * SLOT
}

pub fn checked(slot_count: u32) -> PyResult<u32> {
    if slot_count == 0 {
        return Err(PyValueError::new_err("an index has at least one slot"));
    }
    Ok(slot_count)
}
