//! Requests that store messages as they are, `SEND_MESSAGE_V2` and `SEND_BATCH_MESSAGE`: the first frames of what
//! connections have received.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::batch::{int_at, read, Bounds, Entry};
use crate::header::{number, Head};
use crate::java_hash::JavaHash;
use crate::memory::{outside, Memory};
use crate::panics::caught;
use crate::properties::{each_property, Known};
use crate::record::{Message, Packer, Producer, Run, Shared};
use crate::state::{IndexState, LogState, QueueState};

const SEND_MESSAGE_V2: i32 = 310;
const SEND_BATCH_MESSAGE: i32 = 320;
const ONEWAY: i32 = 2;
/// Bytes before the header: the lengths of the frame and of the header.
const PREFIX: usize = 8;
/// The start of the header of nearly all clients; what follows it tells other requests quickly.
const USUAL_BEGIN: &[u8] = b"{\"code\":";
const USUAL_CODES: [&[u8]; 2] = [b"310,", b"320,"];
/// Bytes up to the end of the code.
const UP_TO_CODE: usize = PREFIX + 12;
const MOST_PROPERTIES: usize = 64;
/// Bytes that a record has more than its request, at most, unless the addresses or the properties of the broker are long.
const MORE_THAN_HOSTS: usize = 64;
/// Digits of a commit log offset in the id of a message.
const ID_DIGITS: usize = 16;
/// Digits of the longest number, and its sign.
const MOST_DIGITS: usize = 20;
const LONGEST_HEADER: usize = 16 * 1024;

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
    signed: Option<Signed>,
}

/// The signature of a request.
struct Signed {
    sender: usize,
    /// What is signed: the values of the fields, and the body.
    fields: Vec<u8>,
    body: Range<usize>,
    signature: Vec<u8>,
    scope: Option<(String, Vec<u8>)>,
}

/// Who sends what: a connection, a code, an account by its access key, and a queue.
struct Sender {
    connection: usize,
    code: i32,
    access_key: String,
    target: usize,
}

/// A message; in a batch its own properties are there.
struct Stored {
    flag: i32,
    body: Range<usize>,
    own: Option<Entry>,
    tags_code: i64,
    keys: Range<usize>,
}

/// A queue; its topic is a number.
struct Target {
    topic: usize,
    queue_id: i32,
    /// The last connection that sends to the queue.
    user: Option<usize>,
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
    /// Whether the next request was not read because of the number of those before it.
    may_go_on: bool,
}

/// Where the parts of a frame are that may be a send.
struct Frame {
    start: usize,
    header_length: usize,
    body_length: usize,
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
    store_host: Vec<u8>,
    keeps_signatures: bool,
}

/// Messages of requests that are stored as they are.
#[pyclass(frozen)]
pub struct PlainSends {
    found: Found,
    /// For each connection its address, and the bits of the system flag that go with it.
    hosts: Vec<(Py<PyBytes>, i32)>,
    reader: Py<SendReader>,
}

/// What was read: each connection has some of the requests, each request some of the messages, each message some of
/// the keys.
#[derive(Default)]
struct Found {
    /// The bodies of the requests.
    data: Vec<u8>,
    parts: Vec<Part>,
    requests: Vec<Request>,
    messages: Vec<Stored>,
    topics: Vec<String>,
    targets: Vec<Target>,
    uses: Vec<Use>,
    keys: Vec<JavaHash>,
    senders: Vec<Sender>,
}

#[pymethods]
impl SendReader {
    #[new]
    #[pyo3(signature = (
        *, waiting, timed, sys_flags, most_keys, most_keys_in_all, most_messages, most_bytes, most_sends, store_host,
        keeps_signatures
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
        store_host: Vec<u8>,
        keeps_signatures: bool,
    ) -> Self {
        Self {
            waiting,
            timed,
            sys_flags,
            most_keys,
            most_keys_in_all,
            most_messages,
            most_bytes,
            most_sends,
            store_host,
            keeps_signatures,
        }
    }

    /// Returns the messages of the first requests of each connection; `None` if there are none.
    #[pyo3(signature = (received, last_property, longest_body, most = None))]
    #[allow(clippy::needless_pass_by_value)] // Python's lists
    fn read(
        slf: &Bound<'_, Self>,
        received: Vec<(Bound<'_, PyBytes>, i32, Bound<'_, PyAny>)>,
        last_property: &str,
        longest_body: usize,
        most: Option<Vec<usize>>,
    ) -> PyResult<Option<PlainSends>> {
        caught(|| {
            let (mut found, mut hosts) = (Found::default(), Vec::with_capacity(received.len()));
            for (connection, (host, host_flags, bytes)) in received.into_iter().enumerate() {
                let Some(most) = most.as_ref().map_or(Some(usize::MAX), |most| most.get(connection).copied()) else {
                    return Ok(None);
                };
                slf.get().read_part(&Memory::of(&bytes)?, most, last_property, longest_body, &mut found);
                hosts.push((host.unbind(), host_flags));
            }
            Ok((!found.requests.is_empty()).then(|| PlainSends { found, hosts, reader: slf.clone().unbind() }))
        })
    }
}

impl SendReader {
    /// Returns the messages of the first requests of a connection, and whether that is one request; `None` if there are none.
    pub fn read_alone(
        slf: &Bound<'_, Self>,
        received: &Bound<'_, PyAny>,
        (host, host_flags): (Bound<'_, PyBytes>, i32),
        last_property: &str,
        longest_body: usize,
    ) -> PyResult<Option<(PlainSends, bool)>> {
        let (received, mut found) = (Memory::of(received)?, Found::default());
        slf.get().read_part(&received, usize::MAX, last_property, longest_body, &mut found);
        if found.requests.is_empty() {
            return Ok(None);
        }
        let is_lone = found.requests.len() == 1;
        let hosts = vec![(host.unbind(), host_flags)];
        Ok(Some((PlainSends { found, hosts, reader: slf.clone().unbind() }, is_lone)))
    }

    /// Adds the first requests of a connection.
    ///
    /// Each is looked at once, and before its body is copied, its header must be that of a plain send.
    fn read_part(&self, received: &Memory, most: usize, last_property: &str, longest_body: usize, found: &mut Found) {
        let (connection, first) = (found.parts.len(), found.requests.len());
        let (mut position, mut header) = (0, Vec::new());
        let may_go_on = loop {
            if found.requests.len() >= self.most_sends {
                break true;
            }
            if found.requests.len() - first >= most {
                break false;
            }
            let Some(frame) = Frame::at(received, position, longest_body) else { break false };
            let kept = found.data.len();
            let is_added = self.read_request(received, &frame, &mut header, last_property, found);
            if is_added != Some(true) {
                found.data.truncate(kept);
                break is_added.is_some();
            }
            let (number, target) = (found.requests.len() - 1, found.requests[found.requests.len() - 1].target);
            // The requests of a connection follow each other, so the last user tells whether this one is known.
            if found.targets[target].user.replace(connection) != Some(connection) {
                found.uses.push(Use { connection, target, first: number - first });
            }
            position = frame.end();
        };
        found.parts.push(Part { requests: first..found.requests.len(), length: position, may_go_on });
    }

    /// Adds a request; returns whether there was room for it, `None` if it is unusual. Otherwise only `data` may have more.
    fn read_request(
        &self,
        received: &Memory,
        frame: &Frame,
        header: &mut Vec<u8>,
        last_property: &str,
        found: &mut Found,
    ) -> Option<bool> {
        header.clear();
        received.append_to(frame.start + PREFIX, frame.header_length, header).ok()?;
        let header = header.as_slice();
        let head = Head::of(std::str::from_utf8(header).ok()?)?;
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

        let mut longest_body = frame.body_length;
        if is_batch && (longest_body == 0 || longest_body > self.most_bytes) {
            return None;
        }

        // A copy, since the connection's buffer is read into again before the messages are dropped.
        let (body_start, position) = (found.data.len(), frame.end() - frame.body_length);
        if body_start == 0 {
            found.data.reserve(received.len() - position);
        }
        received.append_to(position, frame.body_length, &mut found.data).ok()?;
        let end = found.data.len();
        // Nothing else is added before all is read.
        let (mut messages, mut keys) = (Vec::new(), Vec::new());
        let (first_message, first_key) = (found.messages.len(), found.keys.len());
        let mut waits = known.waits();
        if is_batch {
            let (timed, most_keys) = (self.timed.as_str(), self.most_keys);
            let bounds = Bounds { timed, most_keys, most_keys_in_all: self.most_keys_in_all };
            let (entries, entry_keys, last_waits) = read(&found.data, body_start, &bounds)?;
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
            return (first_message > 0).then_some(false);
        }

        let topic = found.topics.iter().position(|topic| *topic == fields.b).unwrap_or_else(|| {
            found.topics.push(fields.b.to_string());
            found.topics.len() - 1
        });
        let is_same = |target: &Target| target.queue_id == queue_id && target.topic == topic;
        let target = found.targets.iter().position(is_same).unwrap_or_else(|| {
            found.targets.push(Target { topic, queue_id, user: None });
            found.targets.len() - 1
        });
        let signed = head.keys.filter(|_| self.keeps_signatures).map(|keys| {
            let sender = found.sender(head.code, &keys.access_key, target);
            let signature = keys.signature.as_bytes().to_vec();
            let content = keys.content(fields);
            let scope = keys.scope.map(|(scope, layout)| (scope.into_owned(), layout));
            Signed { sender, fields: content, body: body_start..end, signature, scope }
        });
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
            signed,
        });
        Some(true)
    }

    /// Returns the properties as they are stored: with the broker's at the end and, for a message that is not a batch,
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

impl Frame {
    /// Returns the frame at a position; `None` if it is not whole, or surely no plain send with at most such a body.
    fn at(received: &Memory, start: usize, longest_body: usize) -> Option<Self> {
        // The header of a send is longer than the beginning that is looked at.
        if !received.has(start, UP_TO_CODE) {
            return None;
        }
        let head: [u8; UP_TO_CODE] = received.get(start).ok()?;
        let length = usize::try_from(int_at(&head, 0)?).ok()?;
        // The encoding is in the top byte: 0 for JSON, so that a longer header here is another encoding too.
        let header_length = usize::try_from(int_at(&head, 4)?).ok().filter(|length| *length <= LONGEST_HEADER)?;
        let body_length = length.checked_sub(4 + header_length).filter(|length| *length <= longest_body)?;
        let (begin, code) = head[PREFIX..].split_at(USUAL_BEGIN.len());
        let is_other = begin == USUAL_BEGIN && code[0] != b' ' && !USUAL_CODES.contains(&code);
        (!is_other && received.has(start, length + 4)).then_some(Self { start, header_length, body_length })
    }

    fn end(&self) -> usize {
        self.start + PREFIX + self.header_length + self.body_length
    }
}

impl Found {
    /// Returns the number of a sender on the connection that is being read.
    fn sender(&mut self, code: i32, access_key: &str, target: usize) -> usize {
        let connection = self.parts.len();
        let is_same = |sender: &Sender| {
            (sender.connection, sender.code, sender.target) == (connection, code, target)
                && sender.access_key == access_key
        };
        self.senders.iter().position(is_same).unwrap_or_else(|| {
            self.senders.push(Sender { connection, code, access_key: access_key.to_owned(), target });
            self.senders.len() - 1
        })
    }
}

/// The scope of a request, and the names and lengths of the other fields.
type Scope<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);
/// The number of a request's sender, what is signed, the signature, and the scope.
type Signature<'py> = (usize, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Option<Scope<'py>>);

#[pymethods]
impl PlainSends {
    fn __len__(&self) -> usize {
        self.found.requests.len()
    }

    /// The topic and the id of each queue that gets messages.
    #[getter]
    fn targets<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyString>, i32)> {
        // Queues share the string of their topic: Python hashes it once.
        let topics: Vec<_> = self.found.topics.iter().map(|topic| PyString::new(py, topic)).collect();
        self.found.targets.iter().map(|target| (topics[target.topic].clone(), target.queue_id)).collect()
    }

    /// The topics of these queues, each once.
    #[getter]
    fn topics(&self) -> Vec<&str> {
        self.found.topics.iter().map(String::as_str).collect()
    }

    /// For each of the queues the tags codes of its messages.
    #[getter]
    pub fn tags_codes(&self) -> Vec<Vec<i64>> {
        let mut codes = vec![Vec::new(); self.found.targets.len()];
        for request in &self.found.requests {
            let messages = &self.found.messages[request.messages.clone()];
            codes[request.target].extend(messages.iter().map(|message| message.tags_code));
        }
        codes
    }

    /// The number of messages.
    #[getter]
    fn message_count(&self) -> usize {
        self.found.messages.len()
    }

    /// Length of the longest body of a message or batch, in bytes.
    #[getter]
    fn longest_body(&self) -> usize {
        let batches = self.found.requests.iter().map(|request| request.longest_body);
        batches.chain(self.found.messages.iter().map(|message| message.body.len())).max().unwrap_or(0)
    }

    /// Whether all answers wait for the disk, where answers do so.
    #[getter]
    fn all_wait(&self) -> bool {
        self.found.requests.iter().all(|request| request.waits)
    }

    /// The connections that send to each queue: the number of the connection, that of the queue, and that of the
    /// connection's first request that does so.
    #[getter]
    fn uses(&self) -> Vec<(usize, usize, usize)> {
        self.found.uses.iter().map(|found| (found.connection, found.target, found.first)).collect()
    }

    /// For each connection the number of its requests.
    #[getter]
    fn counts(&self) -> Vec<usize> {
        self.found.parts.iter().map(|part| part.requests.len()).collect()
    }

    /// The senders that sign their requests: the number of the connection, the code, the access key and the number of
    /// the queue.
    #[getter]
    fn senders(&self) -> Vec<(usize, i32, &str, usize)> {
        let senders = self.found.senders.iter();
        senders.map(|sender| (sender.connection, sender.code, sender.access_key.as_str(), sender.target)).collect()
    }

    /// Returns for each of a connection's requests the number of its sender, what is signed, the signature, and the scope; `None`
    /// for a request without a signature, or with other fields than usual.
    fn signatures<'py>(&self, py: Python<'py>, connection: usize) -> PyResult<Vec<Option<Signature<'py>>>> {
        let part = self.found.parts.get(connection).ok_or_else(outside)?;
        let one = |signed: &Signed| {
            let body = &self.found.data[signed.body.clone()];
            let content = PyBytes::new_with(py, signed.fields.len() + body.len(), |content| {
                let (fields, rest) = content.split_at_mut(signed.fields.len());
                fields.copy_from_slice(&signed.fields);
                rest.copy_from_slice(body);
                Ok(())
            })?;
            let scope = signed.scope.as_ref();
            let scope = scope.map(|(scope, layout)| (PyBytes::new(py, scope.as_bytes()), PyBytes::new(py, layout)));
            Ok((signed.sender, content, PyBytes::new(py, &signed.signature), scope))
        };
        self.found.requests[part.requests.clone()]
            .iter()
            .map(|each| each.signed.as_ref().map(one).transpose())
            .collect()
    }

    /// Returns the messages as records, written and counted if log, queues and index have room for them.
    #[pyo3(signature = (log, queues, index, store_timestamp, /))]
    #[allow(clippy::needless_pass_by_value)] // Python's list
    fn pack(
        &self,
        log: &Bound<'_, LogState>,
        queues: Vec<Bound<'_, QueueState>>,
        index: Option<&Bound<'_, IndexState>>,
        store_timestamp: i64,
    ) -> PyResult<Run> {
        caught(|| {
            let mut run = self.packed(log, &queues, store_timestamp)?;
            run.write_if_room(log, &queues, index, store_timestamp)?;
            Ok(run)
        })
    }

    /// Returns for each connection the bytes of its requests, the answers to it, one after the other, and whether its next
    /// request was only left out because of the number of those before it.
    fn answers<'py>(
        &self,
        py: Python<'py>,
        run: &Run,
        template: &AnswerTemplate,
    ) -> PyResult<Vec<(usize, Bound<'py, PyBytes>, bool)>> {
        caught(|| {
            let mut answers = Vec::new();
            let parts = self.found.parts.iter();
            parts
                .map(|part| {
                    self.answer(part, run, template, &mut answers)?;
                    Ok((part.length, PyBytes::new(py, &answers), part.may_go_on))
                })
                .collect()
        })
    }
}

impl PlainSends {
    /// Returns the queue of the first request.
    pub fn first_target(&self) -> (&str, i32) {
        let target = &self.found.targets[self.found.requests[0].target];
        (&self.found.topics[target.topic], target.queue_id)
    }

    /// Returns the bytes of the requests of the first connection.
    pub fn first_length(&self) -> usize {
        self.found.parts[0].length
    }

    /// Returns the answers to the first connection.
    pub fn first_answer<'py>(
        &self,
        py: Python<'py>,
        run: &Run,
        template: &AnswerTemplate,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut answers = Vec::new();
        self.answer(&self.found.parts[0], run, template, &mut answers)?;
        Ok(PyBytes::new(py, &answers))
    }

    /// Returns the messages as records that are not written.
    pub fn packed(
        &self,
        log: &Bound<'_, LogState>,
        queues: &[Bound<'_, QueueState>],
        store_timestamp: i64,
    ) -> PyResult<Run> {
        let (py, found) = (log.py(), &self.found);
        let shared = Shared { store_host: &self.reader.get().store_host, reconsume_times: 0, store_timestamp };
        let (messages, received) = (found.messages.len(), found.parts.iter().map(|part| part.length).sum::<usize>());
        let end = log.try_borrow()?.end;
        let mut packer = Packer::new(shared, end, messages, received + messages * MORE_THAN_HOSTS);
        for (target, queue) in found.targets.iter().zip(queues) {
            packer.add_queue(&found.topics[target.topic], target.queue_id, queue.try_borrow()?.max_offset)?;
        }
        let data = found.data.as_slice();
        for (part, (host, host_flags)) in found.parts.iter().zip(&self.hosts) {
            let producer = Producer { host: host.as_bytes(py), host_flags: *host_flags };
            for request in &found.requests[part.requests.clone()] {
                for stored in &found.messages[request.messages.clone()] {
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
                    for key in &found.keys[stored.keys.clone()] {
                        packer.add_key(request.target, *key);
                    }
                }
            }
        }
        Ok(packer.run())
    }

    /// Replaces some answers by those to the requests of a connection.
    fn answer(&self, part: &Part, run: &Run, template: &AnswerTemplate, answers: &mut Vec<u8>) -> PyResult<()> {
        let requests = &self.found.requests[part.requests.clone()];
        let ids = requests.iter().map(|request| request.messages.len()).sum::<usize>();
        answers.clear();
        answers.reserve(requests.len() * template.longest() + ids * (template.id_prefix.len() + ID_DIGITS + 1));
        for request in requests.iter().filter(|request| !request.is_oneway) {
            let queue_id = self.found.targets[request.target].queue_id;
            template.add(answers, request.opaque, queue_id, &run.offsets[request.messages.clone()])?;
        }
        Ok(())
    }
}

/// The header of an answer in pieces, between which its numbers come.
#[pyclass(frozen)]
pub struct AnswerTemplate {
    id_prefix: String,
    /// What stands before the ids of the messages, the queue, the queue offset, the request's number, and behind it.
    pieces: [String; 5],
}

#[pymethods]
impl AnswerTemplate {
    #[new]
    fn new(id_prefix: String, pieces: [String; 5]) -> Self {
        Self { id_prefix, pieces }
    }
}

impl AnswerTemplate {
    /// Returns the largest number of bytes of an answer without its ids.
    fn longest(&self) -> usize {
        PREFIX + self.pieces.iter().map(String::len).sum::<usize>() + 3 * MOST_DIGITS
    }

    /// Adds the answer to a request whose messages have these offsets, in the commit log and in their queue.
    fn add(&self, answers: &mut Vec<u8>, opaque: i32, queue_id: i32, offsets: &[(i64, i64)]) -> PyResult<()> {
        let [ids, queue, queue_offset, number, rest] = &self.pieces;
        let start = answers.len();
        answers.extend_from_slice(&[0; PREFIX]);
        answers.extend_from_slice(ids.as_bytes());
        for (place, (offset, _)) in offsets.iter().enumerate() {
            if place > 0 {
                answers.push(b',');
            }
            answers.extend_from_slice(self.id_prefix.as_bytes());
            answers.extend_from_slice(&hexadecimal(*offset)); // `write!` takes ten times the instructions
        }
        let first = offsets.first().map_or(0, |(_, queue_offset)| *queue_offset);
        for (before, value) in [(queue, i64::from(queue_id)), (queue_offset, first), (number, i64::from(opaque))] {
            answers.extend_from_slice(before.as_bytes());
            add_decimal(answers, value);
        }
        answers.extend_from_slice(rest.as_bytes());
        let header = u32::try_from(answers.len() - start - PREFIX)?;
        answers[start..start + 4].copy_from_slice(&(header + 4).to_be_bytes());
        answers[start + 4..start + PREFIX].copy_from_slice(&header.to_be_bytes());
        Ok(())
    }
}

/// Adds a number in decimal digits.
fn add_decimal(text: &mut Vec<u8>, number: i64) {
    let (mut digits, mut start) = ([0; MOST_DIGITS], MOST_DIGITS);
    let mut rest = number.unsigned_abs();
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        start -= 1;
        digits[start] = b'-';
    }
    text.extend_from_slice(&digits[start..]);
}

/// Returns the 16 hexadecimal digits of a number.
fn hexadecimal(number: i64) -> [u8; ID_DIGITS] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let bytes = number.to_be_bytes();
    std::array::from_fn(|place| {
        let byte = bytes[place / 2];
        DIGITS[usize::from(if place % 2 == 0 { byte >> 4 } else { byte & 15 })]
    })
}
