//! Records, as drawn in `rocket_remoting.wire.record`, and the entries that lead to them.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::index_run::IndexRun;
use crate::java_hash::JavaHash;

const MAGIC_V1: u32 = 0xDAA3_20A7;
const LONGEST_TOPIC: u8 = 127;
/// Bytes of the fixed fields without the two hosts.
const FIXED: usize = 72;
/// Bytes of an entry of the consume queue: commit log offset, size and tags code.
const QUEUE_ENTRY: usize = 20;

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
struct Queue {
    id: i32,
    /// The topic as a record has it: its length, then its bytes.
    topic: Vec<u8>,
    /// Java's hash of the topic and a `#`, which stands before each key in the index.
    before_keys: u32,
    next_offset: i64,
    entries: Vec<u8>,
    end: i64,
}

/// Packs messages one after the other.
pub struct Packer<'a> {
    shared: Shared<'a>,
    queues: Vec<Queue>,
    records: Vec<u8>,
    next: i64,
    last_size: i64,
    offsets: Vec<i64>,
    queue_offsets: Vec<i64>,
    key_hashes: Vec<i32>,
    key_offsets: Vec<i64>,
}

impl<'a> Packer<'a> {
    /// Returns a packer whose first record has this offset in the commit log.
    pub fn new(shared: Shared<'a>, commit_log_offset: i64) -> Self {
        Self {
            shared,
            queues: Vec::new(),
            records: Vec::new(),
            next: commit_log_offset,
            last_size: 0,
            offsets: Vec::new(),
            queue_offsets: Vec::new(),
            key_hashes: Vec::new(),
            key_offsets: Vec::new(),
        }
    }

    /// Adds a queue whose next message has this offset in it.
    pub fn add_queue(&mut self, topic: &str, id: i32, next_offset: i64) -> PyResult<()> {
        let length = u8::try_from(topic.len()).ok().filter(|length| *length <= LONGEST_TOPIC);
        let length = length.ok_or_else(|| PyValueError::new_err("the topic is longer than 127 bytes"))?;
        let before_keys = JavaHash::of(&format!("{topic}#")).hash;
        let topic = [&[length], topic.as_bytes()].concat();
        self.queues.push(Queue { id, topic, before_keys, next_offset, entries: Vec::new(), end: 0 });
        Ok(())
    }

    /// Adds the record of a message to a queue, and its entry.
    pub fn add(&mut self, queue: usize, producer: &Producer, message: &Message) -> PyResult<()> {
        let (shared, queue) = (self.shared, &mut self.queues[queue]);
        let properties_length: usize = message.properties.iter().map(|piece| piece.len()).sum();
        let hosts = producer.host.len() + shared.store_host.len();
        let size = FIXED + hosts + message.body.len() + queue.topic.len() + 2 + properties_length;
        let size = i32::try_from(size).map_err(|_| too_large("record"))?;
        let properties_length = i16::try_from(properties_length).map_err(|_| too_large("properties"))?;
        let body_length = i32::try_from(message.body.len()).map_err(|_| too_large("body"))?;
        let (offset, queue_offset) = (self.next, queue.next_offset);
        let end = offset.checked_add(i64::from(size)).ok_or_else(|| too_large("offset"))?;
        queue.next_offset = queue_offset.checked_add(1).ok_or_else(|| too_large("queue offset"))?;

        let mut put = |field: &[u8]| self.records.extend_from_slice(field);
        put(&size.to_be_bytes());
        put(&MAGIC_V1.to_be_bytes());
        put(&(crc32fast::hash(message.body) & 0x7FFF_FFFF).to_be_bytes());
        put(&queue.id.to_be_bytes());
        put(&message.flag.to_be_bytes());
        put(&queue_offset.to_be_bytes());
        put(&offset.to_be_bytes());
        put(&(message.sys_flag | producer.host_flags).to_be_bytes());
        put(&message.born_timestamp.to_be_bytes());
        put(producer.host);
        put(&shared.store_timestamp.to_be_bytes());
        put(shared.store_host);
        put(&shared.reconsume_times.to_be_bytes());
        put(&0_i64.to_be_bytes()); // prepared transaction offset
        put(&body_length.to_be_bytes());
        put(message.body);
        put(&queue.topic);
        put(&properties_length.to_be_bytes());
        message.properties.iter().for_each(|piece| put(piece));

        queue.entries.reserve(QUEUE_ENTRY);
        queue.entries.extend_from_slice(&offset.to_be_bytes());
        queue.entries.extend_from_slice(&size.to_be_bytes());
        queue.entries.extend_from_slice(&message.tags_code.to_be_bytes());
        queue.end = end;
        self.offsets.push(offset);
        self.queue_offsets.push(queue_offset);
        (self.next, self.last_size) = (end, i64::from(size));
        Ok(())
    }

    /// Indexes the message that was added last under a key.
    pub fn add_key(&mut self, queue: usize, key: JavaHash) {
        let hash = key.behind(self.queues[queue].before_keys);
        self.key_hashes.push(hash.cast_signed());
        self.key_offsets.push(self.next - self.last_size);
    }

    /// Returns what was packed.
    pub fn run(self, py: Python<'_>) -> Run {
        Run {
            records: PyBytes::new(py, &self.records).unbind(),
            queues: self.queues.into_iter().map(|queue| (queue.entries, queue.end)).collect(),
            offsets: self.offsets,
            queue_offsets: self.queue_offsets,
            last_size: self.last_size,
            key_hashes: self.key_hashes,
            key_offsets: self.key_offsets,
        }
    }
}

/// Records, and the entries that lead to them.
#[pyclass(frozen)]
pub struct Run {
    records: Py<PyBytes>,
    queues: Vec<(Vec<u8>, i64)>,
    pub offsets: Vec<i64>,
    pub queue_offsets: Vec<i64>,
    last_size: i64,
    key_hashes: Vec<i32>,
    key_offsets: Vec<i64>,
}

#[pymethods]
impl Run {
    /// The records, one after the other.
    #[getter]
    fn records(&self, py: Python<'_>) -> Py<PyBytes> {
        self.records.clone_ref(py)
    }

    /// For each queue the entries, one after the other, and where the last one's record ends.
    #[getter]
    fn queue_entries<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, i64)> {
        self.queues.iter().map(|(entries, end)| (PyBytes::new(py, entries), *end)).collect()
    }

    /// The commit log offset of each record.
    #[getter]
    fn offsets(&self) -> Vec<i64> {
        self.offsets.clone()
    }

    /// Bytes of the last record.
    #[getter]
    fn last_size(&self) -> i64 {
        self.last_size
    }

    /// Returns the entries for an index with this number of slots; `None` if no message has a key.
    fn index(&self, slot_count: u32) -> PyResult<Option<IndexRun>> {
        if self.key_hashes.is_empty() {
            return Ok(None);
        }
        IndexRun::of(&self.key_hashes, &self.key_offsets, slot_count).map(Some)
    }
}

fn too_large(field: &str) -> PyErr {
    PyOverflowError::new_err(format!("the {field} of a message is too large for its field"))
}
