//! Reads messages through the entries of a queue, as drawn in `rocket_broker.store.consume_queue`.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::memory::Memory;
use crate::panics::caught;
use crate::record::{HOST_FLAGS, MAGIC_V1, QUEUE_ENTRY};

/// Bytes of a record with two IPv4 hosts before its body.
const BEFORE_BODY: usize = 88;

/// The number of entries that were looked at, the records and their bytes.
type Found<'py> = (usize, Vec<Bound<'py, PyBytes>>, usize);

/// Returns the records of the messages from an entry on, and the number of entries that were looked at; `None` if an
/// entry or a record is unusual.
///
/// `entries` are the bytes of a file of the queue, the positions of the first entry and of the end, and the number of
/// the first message. `log` are the bytes of a file of the log, and its offset there. A record is usual from the
/// offset `first` on and before `end`; before `checked` it may be damaged, and is compared with its entry and the topic.
#[pyfunction]
#[pyo3(signature = (entries, log, bounds, topic, tags, limits, /))]
#[allow(clippy::needless_pass_by_value)] // Python's tuples
pub fn read_records<'py>(
    py: Python<'py>,
    entries: (Bound<'py, PyAny>, usize, usize, i64),
    log: (Bound<'py, PyAny>, i64),
    bounds: (i64, i64, i64),
    topic: &str,
    tags: Option<Vec<i64>>,
    limits: (usize, usize),
) -> PyResult<Option<Found<'py>>> {
    caught(|| records_of(py, &entries, &log, bounds, topic, tags.as_deref(), limits))
}

fn records_of<'py>(
    py: Python<'py>,
    entries: &(Bound<'py, PyAny>, usize, usize, i64),
    log: &(Bound<'py, PyAny>, i64),
    bounds: (i64, i64, i64),
    topic: &str,
    tags: Option<&[i64]>,
    limits: (usize, usize),
) -> PyResult<Option<Found<'py>>> {
    let (file, start, stop, first_number) = entries;
    let ((map, base), (first, checked, end)) = (log, bounds);
    let (most, most_bytes) = limits;
    let (queue, log) = (Memory::of(file)?, Memory::of(map)?);
    let (mut records, mut total, mut looked_at) = (Vec::with_capacity(most.min(64)), 0, 0);
    let mut record = Vec::new();
    for position in (*start..*stop).step_by(QUEUE_ENTRY) {
        let offset = i64::from_be_bytes(queue.get(position)?);
        let size = i32::from_be_bytes(queue.get(position + 8)?);
        let Ok(length) = usize::try_from(size) else { return Ok(None) };
        if !records.is_empty() && (records.len() >= most || total + length > most_bytes) {
            break;
        }
        let is_wanted = match tags {
            Some(tags) => tags.contains(&i64::from_be_bytes(queue.get(position + 12)?)),
            None => true,
        };
        if is_wanted {
            let is_in_log =
                length > 0 && offset >= first && offset.checked_add(size.into()).is_some_and(|to| to <= end);
            if !is_in_log || offset < *base {
                return Ok(None);
            }
            let place = usize::try_from(offset - base)?;
            // A damaged entry may have any size: no more is copied than the record has.
            if !log.has(place, length.max(size_of::<i32>())) || log.get(place)? != size.to_be_bytes() {
                return Ok(None);
            }
            record.clear();
            log.append_to(place, length, &mut record)?;
            let number = first_number.checked_add(i64::try_from(looked_at)?);
            if offset < checked && !number.is_some_and(|number| is_record(&record, topic, number, offset)) {
                return Ok(None);
            }
            records.push(PyBytes::new(py, &record));
            total += length;
        }
        looked_at += 1;
    }
    Ok(Some((looked_at, records, total)))
}

/// Returns whether bytes are the usual record of a message: version 1, with two IPv4 hosts. It does not read the body.
fn is_record(record: &[u8], topic: &str, number: i64, offset: i64) -> bool {
    let word = |position: usize| {
        let bytes = record.get(position..position + 4)?;
        Some(i32::from_be_bytes(bytes.try_into().ok()?))
    };
    let long = |position: usize| Some(i64::from_be_bytes(record.get(position..position + 8)?.try_into().ok()?));
    let is_right = || {
        let is_head = usize::try_from(word(0)?).ok()? == record.len()
            && word(4)?.to_be_bytes() == MAGIC_V1.to_be_bytes()
            && (long(20)?, long(28)?) == (number, offset)
            && word(36)? & HOST_FLAGS == 0;
        let topic_start = BEFORE_BODY + usize::try_from(word(BEFORE_BODY - 4)?).ok()?;
        let topic_end = topic_start + 1 + topic.len();
        let packed = record.get(topic_start..topic_end)?;
        let is_topic = usize::from(packed[0]) == topic.len() && &packed[1..] == topic.as_bytes();
        let length = i16::from_be_bytes(record.get(topic_end..topic_end + 2)?.try_into().ok()?);
        let is_whole = topic_end + 2 + usize::try_from(length).ok()? == record.len();
        Some(is_head && is_topic && is_whole)
    };
    is_right() == Some(true)
}
