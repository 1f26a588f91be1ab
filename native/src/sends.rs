//! Requests that store messages as they are, `SEND_MESSAGE_V2` and `SEND_BATCH_MESSAGE`: the first frames of what
//! connections have received.

use std::borrow::Cow;
use std::io::Write;
use std::ops::Range;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use serde::Deserialize;

use crate::batch::{int_at, read, Bounds, Entry};
use crate::java_hash::JavaHash;
use crate::properties::{each_property, Known};
use crate::record::{Message, Packer, Producer, Run, Shared};

const SEND_MESSAGE_V2: i32 = 310;
const SEND_BATCH_MESSAGE: i32 = 320;
const ONEWAY: i32 = 2;
/// Bytes before the header: the lengths of the frame and of the header.
const PREFIX: usize = 8;
/// The begin of the header of nearly all clients; what follows it tells other requests quickly.
const USUAL_BEGIN: &[u8] = b"{\"code\":";
const USUAL_CODES: [&[u8]; 2] = [b"310,", b"320,"];
const MOST_PROPERTIES: usize = 64;
const LONGEST_HEADER: usize = 16 * 1024;

/// The header of a request; an unknown field is ignored, and a field that is there twice is an error.
#[derive(Deserialize)]
struct Head<'a> {
    code: i32,
    #[serde(default)]
    flag: i32,
    #[serde(default)]
    opaque: i32,
    #[serde(default)]
    #[allow(dead_code)] // read for its type
    version: i32,
    #[serde(borrow, default)]
    #[allow(dead_code)]
    language: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    #[allow(dead_code)]
    remark: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "extFields")]
    fields: Fields<'a>,
}

/// The fields of both requests by their short names, those that decide about storing the message.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    a: Cow<'a, str>,
    #[serde(borrow)]
    b: Cow<'a, str>,
    #[serde(borrow)]
    c: Cow<'a, str>,
    #[serde(borrow)]
    d: Cow<'a, str>,
    #[serde(borrow)]
    e: Cow<'a, str>,
    #[serde(borrow)]
    f: Cow<'a, str>,
    #[serde(borrow)]
    g: Cow<'a, str>,
    #[serde(borrow)]
    h: Cow<'a, str>,
    #[serde(borrow, default)]
    i: Cow<'a, str>,
    #[serde(borrow, default)]
    j: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    k: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    l: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    m: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    n: Option<Cow<'a, str>>,
}

/// A request, and which of the messages are its own.
struct Request {
    target: usize,
    opaque: i32,
    is_oneway: bool,
    waits: bool,
    sys_flag: i32,
    born_timestamp: i64,
    /// The properties of a message; in a batch those that follow the ones of each message.
    properties: Vec<u8>,
    messages: Range<usize>,
    longest_body: usize,
}

/// A message; in a batch its own properties are there.
struct Stored {
    flag: i32,
    body: Range<usize>,
    own: Option<Entry>,
    tags_code: i64,
    keys: Range<usize>,
}

/// A queue, and the tags codes of its messages.
struct Target {
    topic: String,
    queue_id: i32,
    tags_codes: Vec<i64>,
}

/// A queue that a connection sends to, and the number of its first request that does.
struct Use {
    connection: usize,
    target: usize,
    first: usize,
}

/// The requests of a connection, and their bytes.
struct Part {
    requests: Range<usize>,
    length: usize,
}

/// Reads requests. What makes one unusual is given here.
#[pyclass(frozen)]
pub struct SendReader {
    waiting: Vec<String>,
    timed: String,
    sys_flags: i32,
    most_keys: usize,
    most_keys_in_all: usize,
    most_messages: usize,
    most_bytes: usize,
    most_sends: usize,
}

/// Messages of requests that are stored as they are.
#[pyclass(frozen)]
pub struct PlainSends {
    data: Vec<u8>,
    found: Found,
}

/// What was read: each connection has some of the requests, each request some of the messages, each message some of
/// the keys.
#[derive(Default)]
struct Found {
    parts: Vec<Part>,
    requests: Vec<Request>,
    messages: Vec<Stored>,
    targets: Vec<Target>,
    uses: Vec<Use>,
    keys: Vec<JavaHash>,
}

#[pymethods]
impl SendReader {
    #[new]
    #[pyo3(signature = (
        *, waiting, timed, sys_flags, most_keys, most_keys_in_all, most_messages, most_bytes, most_sends
    ))]
    #[allow(clippy::too_many_arguments)] // the bounds of a run
    fn new(
        waiting: Vec<String>,
        timed: String,
        sys_flags: i32,
        most_keys: usize,
        most_keys_in_all: usize,
        most_messages: usize,
        most_bytes: usize,
        most_sends: usize,
    ) -> Self {
        Self { waiting, timed, sys_flags, most_keys, most_keys_in_all, most_messages, most_bytes, most_sends }
    }

    /// Returns the messages of the first requests of each connection; `None` if there are none.
    #[pyo3(signature = (received, last_property, most = None))]
    #[allow(clippy::needless_pass_by_value)] // Python's lists
    fn read(
        &self,
        py: Python<'_>,
        received: Vec<(Bound<'_, PyAny>, PyBuffer<u8>)>,
        last_property: &str,
        most: Option<Vec<usize>>,
    ) -> PyResult<Option<PlainSends>> {
        let mut found = Found::default();
        let mut data = Vec::with_capacity(received.iter().map(|(_, bytes)| bytes.len_bytes()).sum());
        for (connection, (_, bytes)) in received.iter().enumerate() {
            let Some(most) = most.as_ref().map_or(Some(usize::MAX), |most| most.get(connection).copied()) else {
                return Ok(None);
            };
            // A copy, since the connection's buffer is read into again before the messages are dropped.
            let start = data.len();
            data.resize(start + bytes.len_bytes(), 0);
            bytes.copy_to_slice(py, &mut data[start..])?;
            self.read_part(&data, start, most, last_property, &mut found);
        }
        Ok((!found.requests.is_empty()).then_some(PlainSends { data, found }))
    }
}

impl SendReader {
    /// Adds the first requests of a connection, which begin at a position.
    fn read_part(&self, data: &[u8], start: usize, most: usize, last_property: &str, found: &mut Found) {
        let (connection, first) = (found.parts.len(), found.requests.len());
        let mut position = start;
        while found.requests.len() < self.most_sends && found.requests.len() - first < most {
            let Some(end) = self.read_request(data, position, last_property, found) else { break };
            let (number, target) = (found.requests.len() - 1, found.requests[found.requests.len() - 1].target);
            if !found.uses.iter().any(|other| other.connection == connection && other.target == target) {
                found.uses.push(Use { connection, target, first: number - first });
            }
            position = end;
        }
        found.parts.push(Part { requests: first..found.requests.len(), length: position - start });
    }

    /// Adds the request at a position, and returns where the next one begins; adds nothing if it is unusual.
    fn read_request(&self, data: &[u8], position: usize, last_property: &str, found: &mut Found) -> Option<usize> {
        let length = usize::try_from(int_at(data, position)?).ok()?;
        // The encoding is in the top byte: 0 for JSON, so that a longer header here is another encoding too.
        let header_length = usize::try_from(int_at(data, position + 4)?).ok()?;
        if header_length > LONGEST_HEADER || header_length + 4 > length {
            return None;
        }
        let end = position + 4 + length;
        let body_start = position + PREFIX + header_length;
        let header = data.get(..end)?.get(position + PREFIX..body_start)?;
        if header.strip_prefix(USUAL_BEGIN).is_some_and(|rest| !USUAL_CODES.iter().any(|code| rest.starts_with(code))) {
            return None;
        }
        let head: Head = serde_json::from_str(std::str::from_utf8(header).ok()?).ok()?;
        let is_batch = match head.code {
            SEND_MESSAGE_V2 => head.fields.says_batch()?,
            SEND_BATCH_MESSAGE => head.fields.says_batch().map(|_| true)?,
            _ => return None,
        };
        if head.flag & !ONEWAY != 0 || !head.fields.are_plain() {
            return None;
        }
        let fields = &head.fields;
        let sys_flag = number::<i32>(&fields.f).filter(|flag| flag & !self.sys_flags == 0)?;
        let (queue_id, flag, born_timestamp) = (number(&fields.e)?, number(&fields.h)?, number(&fields.g)?);
        let mut known = Known::default();
        let properties = self.properties(&fields.i, last_property, &mut known, is_batch)?;

        // Nothing is added before all is read.
        let (mut messages, mut keys) = (Vec::new(), Vec::new());
        let (first_message, first_key) = (found.messages.len(), found.keys.len());
        let mut longest_body = end - body_start;
        let mut waits = known.waits();
        if is_batch {
            if longest_body == 0 || longest_body > self.most_bytes {
                return None;
            }
            let (timed, most_keys) = (self.timed.as_str(), self.most_keys);
            let bounds = Bounds { timed, most_keys, most_keys_in_all: self.most_keys_in_all };
            let (entries, entry_keys, last_waits) = read(&data[..end], body_start, &bounds)?;
            waits = last_waits;
            let mut entry_keys = entry_keys.iter().peekable();
            for (number, entry) in entries.into_iter().enumerate() {
                let start = first_key + keys.len();
                while let Some(key) = entry_keys.next_if(|key| key.entry == number) {
                    keys.push(key.hash);
                }
                let keys = start..first_key + keys.len();
                let (flag, body, tags_code) = (entry.flag, entry.body.clone(), entry.tags_code);
                messages.push(Stored { flag, body, own: Some(entry), tags_code, keys });
            }
        } else {
            known.each_key(self.most_keys, |key| keys.push(key))?;
            let (body, tags_code) = (body_start..end, known.tags_code());
            messages.push(Stored { flag, body, own: None, tags_code, keys: first_key..first_key + keys.len() });
            longest_body = 0; // counted with the message
        }
        if first_message + messages.len() > self.most_messages || first_key + keys.len() > self.most_keys_in_all {
            return None;
        }

        let is_same = |target: &Target| target.queue_id == queue_id && target.topic == fields.b;
        let target = found.targets.iter().position(is_same).unwrap_or_else(|| {
            found.targets.push(Target { topic: fields.b.to_string(), queue_id, tags_codes: Vec::new() });
            found.targets.len() - 1
        });
        found.targets[target].tags_codes.extend(messages.iter().map(|message| message.tags_code));
        found.messages.extend(messages);
        found.keys.extend(keys);
        found.requests.push(Request {
            target,
            opaque: head.opaque,
            is_oneway: head.flag & ONEWAY != 0,
            waits,
            sys_flag,
            born_timestamp,
            properties,
            messages: first_message..found.messages.len(),
            longest_body,
        });
        Some(end)
    }

    /// Returns the properties as they are stored: with the broker's at the end and, for a message that is no batch,
    /// without the one that says whether the sender waits for the disk.
    fn properties<'a>(&self, text: &'a str, last: &str, known: &mut Known<'a>, is_batch: bool) -> Option<Vec<u8>> {
        let mut names: Vec<&str> = Vec::with_capacity(8);
        let mut stored = Vec::with_capacity(text.len() + last.len() + 1);
        each_property(text, |name, value| {
            if names.len() == MOST_PROPERTIES || names.contains(&name) || self.waiting.iter().any(|other| other == name)
            {
                return None;
            }
            names.push(name);
            known.note(name, value)?;
            if is_batch || !Known::is_wait(name) {
                stored.extend_from_slice(name.as_bytes());
                stored.push(1);
                stored.extend_from_slice(value.as_bytes());
                stored.push(2);
            }
            Some(())
        })?;
        stored.extend_from_slice(last.as_bytes());
        Some(stored)
    }
}

impl Fields<'_> {
    /// Returns whether the request says that it carries a batch; `None` if that is unclear.
    fn says_batch(&self) -> Option<bool> {
        match self.m.as_deref() {
            None | Some("false") => Some(false),
            Some("true") => Some(true),
            Some(_) => None,
        }
    }

    /// Returns whether the fields that are not stored have usual values.
    fn are_plain(&self) -> bool {
        let is_text = |field: &Option<Cow<str>>| field.as_ref().is_none_or(|text| !text.is_empty());
        let is_number = |field: &Option<Cow<str>>| field.as_ref().is_none_or(|text| number::<i32>(text).is_some());
        !self.a.is_empty()
            && !self.c.is_empty()
            && number::<i32>(&self.d).is_some()
            && self.j.as_ref().is_none_or(|times| times == "0")
            && self.k.as_ref().is_none_or(|is_unit| is_unit == "false")
            && is_number(&self.l)
            && is_text(&self.n)
    }
}

#[pymethods]
impl PlainSends {
    fn __len__(&self) -> usize {
        self.found.requests.len()
    }

    /// The number of messages.
    #[getter]
    fn message_count(&self) -> usize {
        self.found.messages.len()
    }

    /// Whether all answers wait for the disk, where answers do so.
    #[getter]
    fn all_wait(&self) -> bool {
        self.found.requests.iter().all(|request| request.waits)
    }

    /// The queues that get messages, with their topics.
    #[getter]
    fn targets(&self) -> Vec<(&str, i32)> {
        self.found.targets.iter().map(|target| (target.topic.as_str(), target.queue_id)).collect()
    }

    /// The connections that send to each queue: the number of the connection, that of the queue, and that of the
    /// connection's first request that does so.
    #[getter]
    fn uses(&self) -> Vec<(usize, usize, usize)> {
        self.found.uses.iter().map(|found| (found.connection, found.target, found.first)).collect()
    }

    /// For each of the queues the tags codes of its messages.
    #[getter]
    fn tags_codes(&self) -> Vec<Vec<i64>> {
        self.found.targets.iter().map(|target| target.tags_codes.clone()).collect()
    }

    /// Length of the longest body of a message or batch, in bytes.
    #[getter]
    fn longest_body(&self) -> usize {
        let batches = self.found.requests.iter().map(|request| request.longest_body);
        batches.chain(self.found.messages.iter().map(|message| message.body.len())).max().unwrap_or(0)
    }

    /// Returns the messages as records; `queue_offsets` has the offset of each queue's next message, `born_hosts` each
    /// connection's address and the bits of the system flag that go with it.
    #[pyo3(signature = (*, queue_offsets, commit_log_offset, store_timestamp, born_hosts, store_host))]
    #[allow(clippy::needless_pass_by_value)] // Python's lists
    fn run(
        &self,
        queue_offsets: Vec<i64>,
        commit_log_offset: i64,
        store_timestamp: i64,
        born_hosts: Vec<(PyBackedBytes, i32)>,
        store_host: &[u8],
    ) -> PyResult<Run> {
        let shared = Shared { store_host, reconsume_times: 0, store_timestamp };
        let mut packer = Packer::new(shared, commit_log_offset);
        for (target, next) in self.found.targets.iter().zip(queue_offsets) {
            packer.add_queue(&target.topic, target.queue_id, next)?;
        }
        let data = self.data.as_slice();
        for (part, (born_host, host_flags)) in self.found.parts.iter().zip(&born_hosts) {
            let producer = Producer { host: born_host, host_flags: *host_flags };
            for request in &self.found.requests[part.requests.clone()] {
                for stored in &self.found.messages[request.messages.clone()] {
                    let (own, closing) = stored
                        .own
                        .as_ref()
                        .map_or((&data[..0], &data[..0]), |entry| (&data[entry.properties.clone()], entry.closing()));
                    let message = Message {
                        flag: stored.flag,
                        sys_flag: request.sys_flag,
                        born_timestamp: request.born_timestamp,
                        body: &data[stored.body.clone()],
                        properties: [own, closing, &request.properties],
                        tags_code: stored.tags_code,
                    };
                    packer.add(request.target, &producer, &message)?;
                    for key in &self.found.keys[stored.keys.clone()] {
                        packer.add_key(request.target, *key);
                    }
                }
            }
        }
        Ok(packer.run())
    }

    /// Returns for each connection the bytes of its requests and the answers to it, one after the other.
    ///
    /// An answer's header is `template` with the ids, the queue, the queue offset and the request's number between its
    /// five pieces. An id is `id_prefix` and the commit log offset.
    fn answers<'py>(
        &self,
        py: Python<'py>,
        run: &Run,
        id_prefix: &str,
        template: (&str, &str, &str, &str, &str),
    ) -> PyResult<Vec<(usize, Bound<'py, PyBytes>)>> {
        let mut all = Vec::with_capacity(self.found.parts.len());
        for part in &self.found.parts {
            let ids =
                self.found.requests[part.requests.clone()].iter().map(|request| request.messages.len()).sum::<usize>();
            let mut answers = Vec::with_capacity(part.requests.len() * 256 + ids * (id_prefix.len() + 17));
            for request in self.found.requests[part.requests.clone()].iter().filter(|request| !request.is_oneway) {
                self.answer(&mut answers, request, run, id_prefix, template)?;
            }
            all.push((part.length, PyBytes::new(py, &answers)));
        }
        Ok(all)
    }
}

impl PlainSends {
    /// Adds the answer to a request.
    fn answer(
        &self,
        answers: &mut Vec<u8>,
        request: &Request,
        run: &Run,
        id_prefix: &str,
        template: (&str, &str, &str, &str, &str),
    ) -> PyResult<()> {
        let (ids, queue, queue_offset, opaque, rest) = template;
        let start = answers.len();
        answers.extend_from_slice(&[0; PREFIX]);
        answers.extend_from_slice(ids.as_bytes());
        for (number, offset) in run.offsets[request.messages.clone()].iter().enumerate() {
            if number > 0 {
                answers.push(b',');
            }
            answers.extend_from_slice(id_prefix.as_bytes());
            answers.extend_from_slice(&hexadecimal(*offset)); // `write!` takes ten times the instructions
        }
        let queue_id = self.found.targets[request.target].queue_id;
        let first = run.queue_offsets[request.messages.start];
        write!(answers, "{queue}{queue_id}{queue_offset}{first}{opaque}{}{rest}", request.opaque)?;
        let header = u32::try_from(answers.len() - start - PREFIX)?;
        answers[start..start + 4].copy_from_slice(&(header + 4).to_be_bytes());
        answers[start + 4..start + PREFIX].copy_from_slice(&header.to_be_bytes());
        Ok(())
    }
}

/// Returns the 16 hexadecimal digits of a number.
fn hexadecimal(number: i64) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let bytes = number.to_be_bytes();
    std::array::from_fn(|place| {
        let byte = bytes[place / 2];
        DIGITS[usize::from(if place % 2 == 0 { byte >> 4 } else { byte & 15 })]
    })
}

/// Returns a number in decimal digits, as Java writes it; `None` for anything else.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (!digits.starts_with('0') || text == "0");
    is_plain.then(|| text.parse().ok())?
}
