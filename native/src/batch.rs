//! The body of a batch request, as drawn in `rocket_remoting.wire.batch`.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::java_hash::JavaHash;
use crate::panics::caught;
use crate::properties::{each_property, Known};
use crate::record::{Message, Packer, Producer, Run, Shared};

/// Bytes before the body: size, magic, CRC, flag and body length, four each.
const HEAD: usize = 20;
/// Bytes of a message without body and properties: the head, and two for the length of the properties.
const SMALLEST: usize = HEAD + 2;

/// One message of a batch, by its positions in the batch's bytes.
pub struct Entry {
    pub flag: i32,
    pub body: Range<usize>,
    pub properties: Range<usize>,
    /// Whether the last property has no separator behind it.
    pub is_open: bool,
    pub tags_code: i64,
    unique_key: Range<usize>,
}

/// A key of a message: the number of the message, and the hash of the key.
pub struct Key {
    pub entry: usize,
    pub hash: JavaHash,
}

/// The messages of a batch, or of a part of one, that are stored as they are.
#[pyclass(frozen)]
pub struct PlainBatch {
    data: Py<PyBytes>,
    entries: Vec<Entry>,
    /// In the order in which they are indexed: for each message the unique key, then the others.
    keys: Vec<Key>,
    waits: bool,
}

/// What makes a message unusual: the beginning of a property's name, and too many keys, of one message or of all.
pub struct Bounds<'a> {
    pub timed: &'a str,
    pub most_keys: usize,
    pub most_keys_in_all: usize,
}

/// Returns the messages between two positions of a batch; `None` if one of them is unusual.
#[pyfunction]
#[pyo3(signature = (data, start, end, *, timed, most_keys, most_keys_in_all))]
pub fn read_batch(
    data: &Bound<'_, PyBytes>,
    start: usize,
    end: usize,
    timed: &str,
    most_keys: usize,
    most_keys_in_all: usize,
) -> PyResult<Option<PlainBatch>> {
    caught(|| {
        let bounds = Bounds { timed, most_keys, most_keys_in_all };
        let found = data.as_bytes().get(..end).and_then(|data| read(data, start, &bounds));
        Ok(found.map(|(entries, keys, waits)| PlainBatch { data: data.clone().unbind(), entries, keys, waits }))
    })
}

/// Returns where each part of a batch begins and ends; `None` if the batch has more than `most_in_all` messages.
///
/// Only the size fields are read. What follows a wrong one belongs to the part that has it.
#[pyfunction]
#[pyo3(signature = (data, *, most_messages, most_bytes, most_in_all))]
pub fn part_bounds(
    data: &[u8],
    most_messages: usize,
    most_bytes: usize,
    most_in_all: usize,
) -> Option<Vec<(usize, usize)>> {
    let end = data.len();
    let mut bounds = Vec::new();
    let (mut start, mut position, mut count) = (0, 0, 0_usize);
    while position < end {
        let given = int_at(data, position).and_then(|size| usize::try_from(size).ok());
        let size = given.filter(|size| *size >= SMALLEST).unwrap_or(end - position);
        if position > start && (count.is_multiple_of(most_messages) || position + size - start > most_bytes) {
            bounds.push((start, position));
            start = position;
        }
        position += size;
        count += 1;
        if count > most_in_all {
            return None;
        }
    }
    if end > 0 {
        bounds.push((start, end));
    }
    Some(bounds)
}

#[pymethods]
impl PlainBatch {
    fn __len__(&self) -> usize {
        self.entries.len()
    }

    /// Length of the longest body, in bytes.
    #[getter]
    fn longest_body(&self) -> usize {
        self.entries.iter().map(|entry| entry.body.len()).max().unwrap_or(0)
    }

    /// Length of the longest properties of a message, in bytes.
    #[getter]
    fn longest_properties(&self) -> usize {
        let lengths = self.entries.iter().map(|entry| entry.properties.len() + usize::from(entry.is_open));
        lengths.max().unwrap_or(0)
    }

    /// Whether the answer waits for the disk; the last message says so.
    #[getter]
    fn waits(&self) -> bool {
        self.waits
    }

    /// The tags code of each message.
    #[getter]
    fn tags_codes(&self) -> Vec<i64> {
        self.entries.iter().map(|entry| entry.tags_code).collect()
    }

    /// Whether the unique keys are a prefix and numbers from `first` on, of eight hexadecimal digits.
    fn has_sequence(&self, py: Python<'_>, prefix: &str, first: u64) -> bool {
        let data = self.data.as_bytes(py);
        self.entries.iter().zip(0_u64..).all(|(entry, number)| {
            let number = first.checked_add(number).map(|number| format!("{number:08X}"));
            let digits = data[entry.unique_key.clone()].strip_prefix(prefix.as_bytes());
            digits.zip(number).is_some_and(|(digits, number)| digits == number.as_bytes())
        })
    }

    /// Returns the messages as records of a queue.
    ///
    /// # Errors
    ///
    /// `OverflowError` if a number does not fit its field, `ValueError` if the topic is too long.
    #[pyo3(signature = (
        *, topic, queue_id, properties, sys_flag, host_flags, born_timestamp, born_host, store_host,
        reconsume_times, store_timestamp, queue_offset, commit_log_offset
    ))]
    #[allow(clippy::too_many_arguments)] // a record has that many fields
    fn run(
        &self,
        py: Python<'_>,
        topic: &str,
        queue_id: i32,
        properties: &[u8],
        sys_flag: i32,
        host_flags: i32,
        born_timestamp: i64,
        born_host: &[u8],
        store_host: &[u8],
        reconsume_times: i32,
        store_timestamp: i64,
        queue_offset: i64,
        commit_log_offset: i64,
    ) -> PyResult<Run> {
        let shared = Shared { store_host, reconsume_times, store_timestamp };
        let producer = Producer { host: born_host, host_flags };
        let mut packer = Packer::new(shared, commit_log_offset, self.entries.len(), 0);
        packer.add_queue(topic, queue_id, queue_offset)?;
        let (data, mut keys) = (self.data.as_bytes(py), self.keys.iter().peekable());
        for (number, entry) in self.entries.iter().enumerate() {
            let message = Message {
                flag: entry.flag,
                sys_flag,
                born_timestamp,
                body: &data[entry.body.clone()],
                properties: [&data[entry.properties.clone()], entry.closing(), properties],
                tags_code: entry.tags_code,
            };
            packer.add(0, &producer, &message)?;
            while let Some(key) = keys.next_if(|key| key.entry == number) {
                packer.add_key(0, key.hash);
            }
        }
        Ok(packer.run())
    }
}

impl Entry {
    /// Returns the separator that the last property lacks.
    pub fn closing(&self) -> &'static [u8] {
        if self.is_open {
            b"\x02"
        } else {
            b""
        }
    }
}

/// Returns the messages from a position on, their keys, and whether the last waits for the disk.
pub fn read(data: &[u8], start: usize, bounds: &Bounds) -> Option<(Vec<Entry>, Vec<Key>, bool)> {
    let (mut entries, mut keys) = (Vec::new(), Vec::new());
    let (mut position, mut waits) = (start, true);
    while position < data.len() {
        let found = read_entry(data, position)?;
        position = found.properties.end;
        let (entry, entry_waits) = with_properties(found, data, bounds, entries.len(), &mut keys)?;
        waits = entry_waits;
        entries.push(entry);
        if keys.len() > bounds.most_keys_in_all {
            return None;
        }
    }
    Some((entries, keys, waits))
}

/// Returns the message at a position, its properties not read; `None` if its lengths do not agree.
fn read_entry(data: &[u8], position: usize) -> Option<Entry> {
    let size = usize::try_from(int_at(data, position)?).ok()?;
    let flag = int_at(data, position + 12)?;
    let body_length = usize::try_from(int_at(data, position + 16)?).ok()?;
    let body_start = position + HEAD;
    let body_end = body_start.checked_add(body_length)?;
    let length = data.get(body_end..body_end.checked_add(2)?)?;
    let properties_length = usize::try_from(i16::from_be_bytes([length[0], length[1]])).ok()?;
    let end = body_end + 2 + properties_length;
    if end > data.len() || end - position != size {
        return None;
    }
    Some(Entry {
        flag,
        body: body_start..body_end,
        properties: body_end + 2..end,
        is_open: false,
        tags_code: 0,
        unique_key: 0..0,
    })
}

/// Returns the message with what its properties say, and whether it waits for the disk; adds its keys.
fn with_properties(
    mut entry: Entry,
    data: &[u8],
    bounds: &Bounds,
    number: usize,
    keys: &mut Vec<Key>,
) -> Option<(Entry, bool)> {
    let own = &data[entry.properties.clone()];
    if own.is_empty() {
        return Some((entry, true));
    }
    entry.is_open = own.last() != Some(&2);
    let mut known = Known::default();
    each_property(std::str::from_utf8(own).ok()?, |name, value| {
        known.note(name, value)?;
        (!name.starts_with(bounds.timed)).then_some(())
    })?;
    if let Some(key) = known.unique_key {
        let start = key.as_ptr() as usize - data.as_ptr() as usize;
        entry.unique_key = start..start + key.len();
    }
    entry.tags_code = known.tags_code();
    known.each_key(bounds.most_keys, |hash| keys.push(Key { entry: number, hash }))?;
    Some((entry, known.waits()))
}

pub fn int_at(data: &[u8], position: usize) -> Option<i32> {
    let field = data.get(position..position.checked_add(4)?)?;
    Some(i32::from_be_bytes([field[0], field[1], field[2], field[3]]))
}
