//! Records that are in the commit log already, and the entries that lead to them.

use std::collections::HashMap;
use std::ops::Range;

use pyo3::prelude::*;

use crate::index::{self, IndexPlace, Key};
use crate::java_hash::JavaHash;
use crate::memory::Memory;
use crate::panics::caught;
use crate::properties::{each_property, Known};
use crate::record::{in_file, queue_entry, EntryFiles, Place, BEFORE_BODY, BEFORE_HOSTS, FIXED, MAGIC_V1, QUEUE_ENTRY};

/// Bytes of the smallest record. The log must have had room for n of them before the message with the number n.
const SMALLEST: i64 = 92;
/// Bit of the system flag that a half message and a rolled back one have: they are in no queue.
const IN_NO_QUEUE: i32 = 0x4;
const BORN_HOST_IS_V6: i32 = 0x10;
const STORE_HOST_IS_V6: i32 = 0x20;

/// Reads records. What makes one unusual is given here.
#[pyclass(frozen)]
pub struct LogReader {
    apart: Vec<Vec<u8>>,
    most_keys: usize,
    checks_bodies: bool,
}

/// The plain records at a place of the log, with their entries.
#[pyclass(frozen)]
pub struct LogBlock {
    records: Records,
    queues: Vec<Queue>,
    keys: Vec<Key>,
    /// The number of messages that have keys.
    indexed: usize,
}

#[derive(Default)]
struct Records {
    count: usize,
    size: usize,
    last_size: usize,
    last_timestamp: i64,
}

/// A queue with messages in a block.
struct Queue {
    topic: String,
    id: i32,
    /// Java's hash of the topic and a `#`, which stands before each key in the index.
    before_keys: u32,
    /// The number of the first message, and the number that the next one must have.
    numbers: Range<i64>,
    /// Where the first record begins in the log, and where the last one ends.
    offsets: Range<i64>,
    last_timestamp: i64,
    entries: Vec<u8>,
}

/// What entries need of a record.
struct Record<'a> {
    topic: &'a [u8],
    queue_id: i32,
    number: i64,
    store_timestamp: i64,
    tags_code: i64,
    known: Known<'a>,
}

#[pymethods]
impl LogReader {
    #[new]
    #[pyo3(signature = (*, apart, most_keys, checks_bodies))]
    fn new(apart: Vec<String>, most_keys: usize, checks_bodies: bool) -> Self {
        let apart = apart.into_iter().map(String::into_bytes).collect();
        Self { apart, most_keys, checks_bodies }
    }

    /// Returns the records from a position on, up to the first that is not plain or not whole; `None` if there are none.
    #[pyo3(signature = (data, position, offset, most_bytes, index_room, /))]
    fn read(
        &self,
        data: &Bound<'_, PyAny>,
        position: usize,
        offset: i64,
        most_bytes: usize,
        index_room: Option<usize>,
    ) -> PyResult<Option<LogBlock>> {
        caught(|| self.block(&Memory::of(data)?, position, offset, most_bytes, index_room))
    }
}

impl LogReader {
    fn block(
        &self,
        data: &Memory,
        position: usize,
        offset: i64,
        most_bytes: usize,
        index_room: Option<usize>,
    ) -> PyResult<Option<LogBlock>> {
        let mut block = LogBlock { records: Records::default(), queues: Vec::new(), keys: Vec::new(), indexed: 0 };
        let mut found = HashMap::new();
        let mut bytes = Vec::new();
        loop {
            let done = block.records.size;
            let start = offset + i64::try_from(done)?;
            let Some(size) = size_at(data, position + done)?.filter(|size| done + size <= most_bytes) else { break };
            bytes.clear();
            data.append_to(position + done, size, &mut bytes)?;
            let Some(record) = self.plain(&bytes, start) else { break };
            if block.add(&record, start, size, &mut found, self.most_keys, index_room).is_none() {
                break;
            }
        }
        Ok((block.records.count > 0).then_some(block))
    }

    /// Returns a record that has this offset in the log; `None` if it is not plain.
    fn plain<'a>(&self, record: &'a [u8], offset: i64) -> Option<Record<'a>> {
        let sys_flag = int_at(record, 36)?;
        let number = long_at(record, 20)?;
        let is_possible = number >= 0 && number.checked_mul(SMALLEST)? <= offset;
        if !is_possible || long_at(record, 28)? != offset || sys_flag & IN_NO_QUEUE != 0 {
            return None;
        }
        let timestamp = BEFORE_HOSTS + host_size(sys_flag & BORN_HOST_IS_V6);
        let body_start = timestamp + 8 + host_size(sys_flag & STORE_HOST_IS_V6) + BEFORE_BODY;
        let body_length = usize::try_from(int_at(record, body_start - 4)?).ok()?;
        let body_end = body_start.checked_add(body_length)?;
        let topic_start = body_end + 1;
        let topic_end = topic_start + usize::from(*record.get(body_end)?);
        let topic = record.get(topic_start..topic_end)?;
        let properties_start = topic_end + 2;
        let length = record.get(topic_end..properties_start)?;
        let properties_length = usize::try_from(i16::from_be_bytes([length[0], length[1]])).ok()?;
        if properties_start + properties_length != record.len() {
            return None;
        }
        // Zeros may be a sector that never reached the disk; those in the properties are not plain either.
        if topic.is_empty() || topic.contains(&0) || self.apart.iter().any(|other| other == topic) {
            return None;
        }
        if self.checks_bodies {
            let sum = crc32fast::hash(&record[body_start..body_end]) & 0x7FFF_FFFF;
            if sum.cast_signed() != int_at(record, 8)? {
                return None;
            }
        }
        let mut known = Known::default();
        let properties = std::str::from_utf8(&record[properties_start..]).ok()?;
        each_property(properties, |name, value| known.note(name, value))?;
        Some(Record {
            topic,
            queue_id: int_at(record, 12)?,
            number,
            store_timestamp: long_at(record, timestamp)?,
            tags_code: known.tags_code(),
            known,
        })
    }
}

#[pymethods]
impl LogBlock {
    /// The bytes of the records, their number, the bytes of the last one, its store timestamp, and the number of messages
    /// that have keys.
    #[getter]
    fn records(&self) -> (usize, usize, usize, i64, usize) {
        let Records { size, count, last_size, last_timestamp } = self.records;
        (size, count, last_size, last_timestamp, self.indexed)
    }

    /// For each queue its topic and id, the number of its first message and where its record begins, how many messages
    /// there are, where the last one's record ends, and the store timestamp of that one.
    #[getter]
    #[allow(clippy::type_complexity)] // a tuple for Python
    fn queues(&self) -> Vec<(&str, i32, i64, i64, usize, i64, i64)> {
        let mut found = Vec::with_capacity(self.queues.len());
        for queue in &self.queues {
            let (numbers, offsets, count) = (&queue.numbers, &queue.offsets, queue.entries.len() / QUEUE_ENTRY);
            let topic = queue.topic.as_str();
            found.push((topic, queue.id, numbers.start, offsets.start, count, offsets.end, queue.last_timestamp));
        }
        found
    }

    /// For each queue the tags codes of its messages.
    #[getter]
    fn tags_codes(&self) -> Vec<Vec<i64>> {
        let code = |entry: &[u8]| long_at(entry, 12).unwrap_or_default();
        self.queues.iter().map(|queue| queue.entries.chunks_exact(QUEUE_ENTRY).map(code).collect()).collect()
    }

    /// The number of keys, each of which has an entry in the index.
    #[getter]
    fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Returns the parts of an index file with slots of the keys that are not marked as allocated, as `Run` does.
    fn parts_without_space(&self, slot_count: u32, allocated: &Bound<'_, PyAny>, bits: u32) -> PyResult<Vec<usize>> {
        index::parts_without_space(&self.keys, slot_count, &Memory::of(allocated)?, bits)
    }

    /// Writes the entries into files, which have room for them; returns the header of the index file.
    #[pyo3(signature = (queues, index, /))]
    #[allow(clippy::needless_pass_by_value)] // Python's objects
    fn write(&self, queues: Vec<Place<'_>>, index: Option<IndexPlace<'_>>) -> PyResult<Option<index::Header>> {
        caught(|| {
            let places = queues.iter().map(in_file).collect::<PyResult<_>>()?;
            let entries = self.queues.iter().map(|queue| queue.entries.as_slice());
            Ok(EntryFiles::of(places, entries, index.map(index::Table::at).transpose()?, &self.keys)?.write())
        })
    }
}

impl LogBlock {
    /// Adds a record and its entries; returns `None` if its number does not follow, or the index has no room.
    fn add(
        &mut self,
        record: &Record<'_>,
        offset: i64,
        size: usize,
        found: &mut HashMap<Vec<u8>, HashMap<i32, usize>>,
        most_keys: usize,
        index_room: Option<usize>,
    ) -> Option<()> {
        let number_behind = record.number.checked_add(1)?;
        let end = offset.checked_add(i64::try_from(size).ok()?)?;
        let place = found.get(record.topic).and_then(|ids| ids.get(&record.queue_id)).copied();
        if place.is_some_and(|place| self.queues[place].numbers.end != record.number) {
            return None;
        }
        let topic = std::str::from_utf8(record.topic).ok()?;
        let before_keys = place.map_or_else(|| JavaHash::before_keys(topic), |place| self.queues[place].before_keys);
        if let Some(room) = index_room {
            let count = self.keys.len();
            let mut add_key =
                |key: JavaHash| self.keys.push(Key::of(key.behind(before_keys), offset, record.store_timestamp));
            if record.known.each_key(most_keys, &mut add_key).is_none() || self.keys.len() > room {
                self.keys.truncate(count);
                return None;
            }
            self.indexed += usize::from(self.keys.len() > count);
        }
        let place = place.unwrap_or_else(|| {
            found.entry(record.topic.to_vec()).or_default().insert(record.queue_id, self.queues.len());
            self.queues.push(Queue {
                topic: topic.to_owned(),
                id: record.queue_id,
                before_keys,
                numbers: record.number..record.number,
                offsets: offset..offset,
                last_timestamp: 0,
                entries: Vec::new(),
            });
            self.queues.len() - 1
        });
        let queue = &mut self.queues[place];
        queue.entries.extend_from_slice(&queue_entry(offset, i32::try_from(size).ok()?, record.tags_code));
        (queue.numbers.end, queue.offsets.end, queue.last_timestamp) = (number_behind, end, record.store_timestamp);
        self.records.count += 1;
        self.records.size += size;
        (self.records.last_size, self.records.last_timestamp) = (size, record.store_timestamp);
        Some(())
    }
}

/// Returns the size of the record at a position; `None` if none of version 1 begins there, or it is not whole.
fn size_at(data: &Memory, position: usize) -> PyResult<Option<usize>> {
    if !data.has(position, FIXED) || data.get(position + 4)? != MAGIC_V1.to_be_bytes() {
        return Ok(None);
    }
    let size = usize::try_from(i32::from_be_bytes(data.get(position)?)).ok();
    Ok(size.filter(|size| *size > 0 && data.has(position, *size)))
}

fn host_size(is_v6: i32) -> usize {
    if is_v6 == 0 {
        8
    } else {
        20
    }
}

fn int_at(data: &[u8], position: usize) -> Option<i32> {
    let field = data.get(position..position + 4)?;
    Some(i32::from_be_bytes(field.try_into().ok()?))
}

fn long_at(data: &[u8], position: usize) -> Option<i64> {
    let field = data.get(position..position + 8)?;
    Some(i64::from_be_bytes(field.try_into().ok()?))
}
