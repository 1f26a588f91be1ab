//! Records, as drawn in `rocket_remoting.wire.record`, and the entries that lead to them.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

use crate::index::{self, IndexPlace, Key};
use crate::java_hash::JavaHash;
use crate::memory::{in_order, outside, Memory};
use crate::panics::caught;
use crate::state::{FilePlace, IndexState, LogState, QueueState};

pub const MAGIC_V1: u32 = 0xDAA3_20A7;
/// The magic of records whose topic has a length of two bytes.
pub const MAGIC_V2: u32 = 0xDAA3_20AB;
/// The bits of the system flag that say which of the hosts have IPv6 addresses.
pub const BORN_HOST_V6: i32 = 0x10;
pub const STORE_HOST_V6: i32 = 0x20;
pub const HOST_FLAGS: i32 = BORN_HOST_V6 | STORE_HOST_V6;
const LONGEST_TOPIC: u8 = 127;
/// Bytes of the fixed fields without the two hosts.
pub const FIXED: usize = 72;
/// Bytes of an entry of the consume queue: commit log offset, size and tags code.
pub const QUEUE_ENTRY: usize = 20;
/// Bytes of a record that are written last: its size and magic, without which there is no record.
const RECORD_HEAD: usize = 8;
/// Bytes of a record before the hosts, and between them and the body; the store timestamp is between the hosts.
pub const BEFORE_HOSTS: usize = 48;
pub const BEFORE_BODY: usize = 16;

/// What all records of a run have in common.
#[derive(Clone, Copy)]
pub struct Shared<'a> {
    pub store_host: &'a [u8],
    pub reconsume_times: i32,
    pub store_timestamp: i64,
}

/// What the records of a producer have in common.
pub struct Producer<'a> {
    pub host: &'a [u8],
    /// The bits of the system flag that say which of the hosts, this one and the broker's, have IPv6 addresses.
    pub host_flags: i32,
}

/// A message to be packed.
pub struct Message<'a> {
    pub flag: i32,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub body: &'a [u8],
    /// The pieces of the properties.
    pub properties: [&'a [u8]; 3],
    pub tags_code: i64,
}

/// A queue that gets messages of a run.
struct Queue<'a> {
    id: i32,
    topic: &'a str,
    topic_length: u8,
    /// Java's hash of the topic and a `#`, which stands before each key in the index.
    before_keys: u32,
    next_offset: i64,
    entries: Vec<u8>,
    end: i64,
}

/// Packs messages one after the other.
pub struct Packer<'a> {
    shared: Shared<'a>,
    queues: Vec<Queue<'a>>,
    records: Vec<u8>,
    next: i64,
    last_size: i64,
    offsets: Vec<(i64, i64)>,
    keys: Vec<Key>,
}

impl<'a> Packer<'a> {
    /// Returns a packer whose first record has this offset in the log, for about `messages` messages, `bytes` long.
    pub fn new(shared: Shared<'a>, commit_log_offset: i64, messages: usize, bytes: usize) -> Self {
        Self {
            shared,
            queues: Vec::new(),
            records: Vec::with_capacity(bytes),
            next: commit_log_offset,
            last_size: 0,
            offsets: Vec::with_capacity(messages),
            keys: Vec::new(),
        }
    }

    /// Adds a queue whose next message has this offset in it.
    pub fn add_queue(&mut self, topic: &'a str, id: i32, next_offset: i64) -> PyResult<()> {
        let length = u8::try_from(topic.len()).ok().filter(|length| *length <= LONGEST_TOPIC);
        let topic_length = length.ok_or_else(|| PyValueError::new_err("the topic is longer than 127 bytes"))?;
        let before_keys = JavaHash::before_keys(topic);
        self.queues.push(Queue { id, topic, topic_length, before_keys, next_offset, entries: Vec::new(), end: 0 });
        Ok(())
    }

    /// Adds the record of a message to a queue, and its entry.
    pub fn add(&mut self, queue: usize, producer: &Producer, message: &Message) -> PyResult<()> {
        let (shared, queue) = (self.shared, &mut self.queues[queue]);
        let properties_length: usize = message.properties.iter().map(|piece| piece.len()).sum();
        let hosts = producer.host.len() + shared.store_host.len();
        let size = FIXED + hosts + message.body.len() + 1 + queue.topic.len() + 2 + properties_length;
        self.records.reserve(size);
        let size = i32::try_from(size).map_err(|_| too_large("record"))?;
        let properties_length = i16::try_from(properties_length).map_err(|_| too_large("properties"))?;
        let body_length = i32::try_from(message.body.len()).map_err(|_| too_large("body"))?;
        let (offset, queue_offset) = (self.next, queue.next_offset);
        let end = offset.checked_add(i64::from(size)).ok_or_else(|| too_large("offset"))?;
        queue.next_offset = queue_offset.checked_add(1).ok_or_else(|| too_large("queue offset"))?;

        // Fields of a fixed size are put together first: each piece that is added to the records costs a check of its own.
        let mut before_hosts = [0; BEFORE_HOSTS];
        before_hosts[..4].copy_from_slice(&size.to_be_bytes());
        before_hosts[4..8].copy_from_slice(&MAGIC_V1.to_be_bytes());
        before_hosts[8..12].copy_from_slice(&(crc32fast::hash(message.body) & 0x7FFF_FFFF).to_be_bytes());
        before_hosts[12..16].copy_from_slice(&queue.id.to_be_bytes());
        before_hosts[16..20].copy_from_slice(&message.flag.to_be_bytes());
        before_hosts[20..28].copy_from_slice(&queue_offset.to_be_bytes());
        before_hosts[28..36].copy_from_slice(&offset.to_be_bytes());
        before_hosts[36..40].copy_from_slice(&(message.sys_flag | producer.host_flags).to_be_bytes());
        before_hosts[40..48].copy_from_slice(&message.born_timestamp.to_be_bytes());
        // Behind the hosts; the prepared transaction offset in the middle is 0.
        let mut before_body = [0; BEFORE_BODY];
        before_body[..4].copy_from_slice(&shared.reconsume_times.to_be_bytes());
        before_body[12..].copy_from_slice(&body_length.to_be_bytes());

        let mut put = |field: &[u8]| self.records.extend_from_slice(field);
        put(&before_hosts);
        put(producer.host);
        put(&shared.store_timestamp.to_be_bytes());
        put(shared.store_host);
        put(&before_body);
        put(message.body);
        put(&[queue.topic_length]);
        put(queue.topic.as_bytes());
        put(&properties_length.to_be_bytes());
        message.properties.iter().for_each(|piece| put(piece));

        queue.entries.extend_from_slice(&queue_entry(offset, size, message.tags_code));
        queue.end = end;
        self.offsets.push((offset, queue_offset));
        (self.next, self.last_size) = (end, i64::from(size));
        Ok(())
    }

    /// Indexes the message that was added last under a key.
    pub fn add_key(&mut self, queue: usize, key: JavaHash) {
        let hash = key.behind(self.queues[queue].before_keys);
        self.keys.push(Key::of(hash, self.next - self.last_size, self.shared.store_timestamp));
    }

    /// Returns what was packed.
    pub fn run(self) -> Run {
        Run {
            records: self.records,
            queues: self.queues.into_iter().map(|queue| (queue.entries, queue.end, queue.next_offset)).collect(),
            end: self.next,
            offsets: self.offsets,
            last_size: self.last_size,
            keys: self.keys,
            header: None,
            is_written: false,
        }
    }
}

/// The map of a file, and a position in it.
pub type Place<'py> = (Bound<'py, PyAny>, usize);

/// Records, and the entries that lead to them.
#[pyclass(frozen)]
pub struct Run {
    records: Vec<u8>,
    /// For each queue its entries, where the last one's record ends, and the number of the next message.
    queues: Vec<(Vec<u8>, i64, i64)>,
    /// The offset behind the last record.
    end: i64,
    /// For each message its offset in the commit log, and the one in its queue.
    pub offsets: Vec<(i64, i64)>,
    last_size: i64,
    keys: Vec<Key>,
    /// The header of the index file, if entries have been written into it.
    header: Option<index::Header>,
    pub is_written: bool,
}

impl Run {
    /// Writes records and entries, as `write` does, and counts them, if each file has room for its own.
    pub fn write_if_room(
        &mut self,
        log: &Bound<'_, LogState>,
        queues: &[Bound<'_, QueueState>],
        index: Option<&Bound<'_, IndexState>>,
        store_timestamp: i64,
    ) -> PyResult<()> {
        let py = log.py();
        let mut log = log.try_borrow_mut()?;
        let Some(log_place) = log.place(py, self.records.len())? else { return Ok(()) };
        let mut places = Vec::with_capacity(queues.len());
        let mut states = Vec::with_capacity(queues.len());
        for (queue, (entries, ..)) in queues.iter().zip(&self.queues) {
            let queue = queue.try_borrow_mut()?;
            let Some(place) = queue.place(py, entries.len())? else { return Ok(()) };
            places.push(place);
            states.push(queue);
        }
        let (mut index_state, mut table) = (None, None);
        if let Some(index) = index.filter(|_| !self.keys.is_empty()) {
            let index = index.try_borrow_mut()?;
            table = index.table_for(py, &self.keys)?;
            if table.is_none() {
                return Ok(());
            }
            index_state = Some(index);
        }
        self.header = self.write_into(log_place, places, table)?;
        // Nothing can fail from here on: what is written is counted.
        self.is_written = true;
        log.appended(self.end, self.last_size, store_timestamp);
        for (queue, (_, end, next)) in states.iter_mut().zip(&self.queues) {
            queue.appended(*next, *end);
        }
        if let (Some(index), Some(header)) = (&mut index_state, self.header) {
            index.appended(header);
        }
        Ok(())
    }

    /// Whether a message has keys.
    pub fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    fn write_into(
        &self,
        log: FilePlace,
        queues: Vec<FilePlace>,
        index: Option<index::Table>,
    ) -> PyResult<Option<index::Header>> {
        let (log, position) = log;
        if !log.has(position, self.records.len()) {
            return Err(outside());
        }
        let entries = self.queues.iter().map(|(entries, ..)| entries.as_slice());
        let entries = EntryFiles::of(queues, entries, index, &self.keys)?;

        let (head, rest) = self.records.split_at(self.records.len().min(RECORD_HEAD));
        log.write(position + head.len(), rest);
        in_order();
        log.write(position, head);
        in_order();
        Ok(entries.write())
    }
}

/// Entries of records in the log, and the files that have room for them.
pub struct EntryFiles<'a> {
    queues: Vec<(FilePlace, &'a [u8])>,
    index: Option<index::Entries>,
}

impl<'a> EntryFiles<'a> {
    /// Checks that there is room for the entries of each queue at its place, and for those of the keys in the index.
    pub fn of(
        places: Vec<FilePlace>,
        entries: impl ExactSizeIterator<Item = &'a [u8]>,
        index: Option<index::Table>,
        keys: &[Key],
    ) -> PyResult<Self> {
        if places.len() != entries.len() {
            return Err(PyValueError::new_err("entries are written into all of their queues"));
        }
        let queues: Vec<_> = places.into_iter().zip(entries).collect();
        if !queues.iter().all(|((file, position), entries)| file.has(*position, entries.len())) {
            return Err(outside());
        }
        let index = index.map(|table| index::Entries::of(table, keys)).transpose()?;
        Ok(Self { queues, index })
    }

    /// Writes the entries of the index, then those of the queues; returns the header of the index file.
    pub fn write(self) -> Option<index::Header> {
        if let Some(index) = &self.index {
            index.write();
        }
        in_order();
        for ((file, position), entries) in &self.queues {
            file.write(*position, entries);
        }
        self.index.map(|index| index.header)
    }
}

#[pymethods]
impl Run {
    /// Whether the records and entries have been written; bytes of the records and of the last one; the header of the
    /// index file, if entries have been written into it.
    #[getter]
    fn result(&self) -> (bool, usize, i64, Option<index::Header>) {
        (self.is_written, self.records.len(), self.last_size, self.header)
    }

    /// Bytes of the records.
    #[getter]
    pub fn size(&self) -> usize {
        self.records.len()
    }

    /// For each queue the number of its messages, and the commit log offset where the last one's record ends.
    #[getter]
    fn queues(&self) -> Vec<(usize, i64)> {
        self.queues.iter().map(|(entries, end, _)| (entries.len() / QUEUE_ENTRY, *end)).collect()
    }

    /// The commit log offset of each record.
    #[getter]
    fn offsets(&self) -> Vec<i64> {
        self.offsets.iter().map(|(offset, _)| *offset).collect()
    }

    /// The number of keys, each of which has an entry in the index.
    #[getter]
    fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Returns the parts of an index file with slots of the keys that are not marked as allocated.
    ///
    /// A part has `1 << bits` bytes, and a mark in `allocated`, which is not 0 if the part has space on the disk.
    fn parts_without_space(&self, slot_count: u32, allocated: &Bound<'_, PyAny>, bits: u32) -> PyResult<Vec<usize>> {
        index::parts_without_space(&self.keys, slot_count, &Memory::of(allocated)?, bits)
    }

    /// Writes records and entries into the files, for which there is room; returns the header of the index file.
    ///
    /// The log comes first: a kill behind it leaves records without entries, and recovery makes these; in the other
    /// order entries would lead to no record. The first bytes of the records are written after the rest of them, so
    /// that a kill before leaves no record. Nothing is written if a position is outside of its file.
    #[pyo3(signature = (log, queues, index))]
    #[allow(clippy::needless_pass_by_value)] // Python's objects
    fn write(
        &self,
        log: Place<'_>,
        queues: Vec<Place<'_>>,
        index: Option<IndexPlace<'_>>,
    ) -> PyResult<Option<index::Header>> {
        caught(|| {
            let queues = queues.iter().map(in_file).collect::<PyResult<_>>()?;
            self.write_into(in_file(&log)?, queues, index.map(index::Table::at).transpose()?)
        })
    }
}

/// Returns the memory of a file that is written to, and the position in it.
pub fn in_file((file, position): &Place<'_>) -> PyResult<FilePlace> {
    Ok((Memory::writable(file)?, *position))
}

fn too_large(field: &str) -> PyErr {
    PyOverflowError::new_err(format!("the {field} of a message is too large for its field"))
}

/// Returns the entry of a message in its queue.
pub fn queue_entry(offset: i64, size: i32, tags_code: i64) -> [u8; QUEUE_ENTRY] {
    let mut entry = [0; QUEUE_ENTRY];
    entry[..8].copy_from_slice(&offset.to_be_bytes());
    entry[8..12].copy_from_slice(&size.to_be_bytes());
    entry[12..].copy_from_slice(&tags_code.to_be_bytes());
    entry
}
